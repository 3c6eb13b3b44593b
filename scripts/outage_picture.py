"""outage_picture.py -- draws what demo.py saw, as one SVG: adds a second, and keys that wait for Redis, over the time.
Always true: every point is a sample; the scales begin at 0. Light and dark pages: the colours come from the page's own."""

WIDTH, HEIGHT, LEFT, RIGHT = 860, 150, 90, 20
STYLE = ("<style>text{font:13px sans-serif;fill:#1c2733}.a{stroke:#1f77b4}.b{stroke:#d9730d}"
         "polyline{fill:none;stroke-width:2}"
         ".axis{stroke:#8a97a5;stroke-width:1}.away{fill:#d9730d;opacity:.13}.page{fill:#ffffff}"
         "@media(prefers-color-scheme:dark){text{fill:#dfe7ef}.page{fill:#10161d}}</style>")


def nice_top(value):
    """The first of 1, 2, 5, 10, 20 ... that is not below the value."""
    step = 1
    while True:
        for factor in (1, 2, 5):
            if step * factor >= value:
                return step * factor
        step *= 10


def panel(samples, field, title, css, top_y):
    begin, end = samples[0]["at_s"], samples[-1]["at_s"]
    top = nice_top(max(1, max(sample[field] for sample in samples)))
    across = (WIDTH - LEFT - RIGHT) / (end - begin)

    def x_of(sample):
        return LEFT + (sample["at_s"] - begin) * across

    away = [x_of(sample) for sample in samples if sample["phase"] == "away"]
    points = " ".join(f"{x_of(s):.1f},{top_y + HEIGHT * (1 - s[field] / top):.1f}" for s in samples)
    return (f'<text x="{LEFT}" y="{top_y - 8}">{title}</text>'
            f'<rect class="away" x="{away[0]:.1f}" y="{top_y}" width="{away[-1] - away[0]:.1f}" height="{HEIGHT}"/>'
            f'<line class="axis" x1="{LEFT}" y1="{top_y + HEIGHT}" x2="{WIDTH - RIGHT}" y2="{top_y + HEIGHT}"/>'
            f'<line class="axis" x1="{LEFT}" y1="{top_y}" x2="{LEFT}" y2="{top_y + HEIGHT}"/>'
            f'<text x="{LEFT - 8}" y="{top_y + 10}" text-anchor="end">{top:,d}</text>'
            f'<text x="{LEFT - 8}" y="{top_y + HEIGHT}" text-anchor="end">0</text>'
            f'<polyline class="{css}" points="{points}"/>')


def draw(samples, counted, held):
    samples = samples[1:]  # the first has no rate
    seconds = samples[-1]["at_s"] - samples[0]["at_s"]
    height = 2 * HEIGHT + 144
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
            "<title>Two processes count while Redis is killed and comes back</title>" + STYLE +
            f'<rect class="page" width="{WIDTH}" height="{height}"/>' +
            panel(samples, "per_s", "adds a second, two processes", "a", 34) +
            panel(samples, "unsent_keys", "keys with counts that Redis has not acknowledged", "b", HEIGHT + 84) +
            f'<text x="{LEFT}" y="{height - 34}">0 s</text>'
            f'<text x="{WIDTH - RIGHT}" y="{height - 34}" text-anchor="end">{seconds:.0f} s</text>'
            f'<text x="{WIDTH / 2}" y="{height - 34}" text-anchor="middle">shaded: Redis is dead</text>'
            f'<text x="{LEFT}" y="{height - 10}">counted by both: {counted:,d}; '
            f"held by Redis in the end: {held:,d}</text>"
            "</svg>\n")
