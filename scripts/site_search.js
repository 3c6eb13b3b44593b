/* site_search.js -- the search of the site that ./dev site makes: the only script, on the page search.html alone.
 * The pages' sections are in PAGES, which site.py writes: [title of the page, heading, where to, text].
 * Always true: nothing is fetched; what is found is shown as text, never as HTML. */
"use strict";

const words_of = (text) => text.toLowerCase().split(/[^\p{L}\p{N}_]+/u).filter((word) => word !== "");

/* How well a section fits: 0 if a word is missing. A word in the heading counts more than one in the text. */
function score(section, words) {
    const [title, heading, , text] = section.map((part) => part.toLowerCase());
    let sum = 0;
    for (const word of words) {
        const here = (heading.includes(word) ? 20 : 0) + (title.includes(word) ? 10 : 0) + (text.includes(word) ? 1 : 0);
        if (here === 0) return 0;
        sum += here + (heading === word || heading === word + "()" ? 100 : 0);
    }
    return sum;
}

/* The text around the first word that is found in it. */
function excerpt(text, words) {
    const lower = text.toLowerCase();
    const places = words.map((word) => lower.indexOf(word)).filter((at) => at >= 0);
    const at = places.length ? Math.max(0, Math.min(...places) - 60) : 0;
    return (at > 0 ? "… " : "") + text.slice(at, at + 220) + (at + 220 < text.length ? " …" : "");
}

function show(question) {
    const list = document.getElementById("found");
    const words = words_of(question);
    const found = words.length === 0 ? [] : PAGES.map((section) => [score(section, words), section]).filter(([fits]) => fits > 0);
    found.sort((a, b) => b[0] - a[0]);
    list.replaceChildren(...found.slice(0, 40).map(([, [title, heading, to, text]]) => {
        const item = document.createElement("li");
        const link = document.createElement("a");
        const about = document.createElement("p");
        link.href = to;
        link.textContent = heading === "" || heading === title ? title : `${title} – ${heading}`;
        about.textContent = excerpt(text, words);
        item.append(link, about);
        return item;
    }));
    document.getElementById("count").textContent = words.length === 0 ? "" : `${found.length} sections`;
}

const field = document.getElementById("q");
field.value = new URLSearchParams(location.search).get("q") ?? "";
field.addEventListener("input", () => show(field.value));
show(field.value);
