/* cluster_nodes.c -- see cluster_nodes.h. */
#include "sync/wire/cluster_nodes.h"

#include "engine/base/check.h"
#include "engine/base/key_slot.h"

#include <string.h>

/* ---- cluster slots ----
 * The nodes of a reply are a flat list. An element ends where the next node of
 * its depth, or of a smaller one, comes. So elements that a later Redis adds to a range or to a node are skipped. */

const struct twi_wire_limits twi_cluster_slots_limits = {.bytes_max = 8u << 20, .nodes_max = 1u << 19, .depth_max = 4};

enum { RANGE_DEPTH = 1, RANGE_PARTS = 3, MASTER_PARTS = 2, ID_PART = 2, MORE_PART = 3 };

/* Where the element at `at` ends. */
static size_t slots_end_of(const struct twi_node *nodes, size_t count, size_t at) {
    twi_check(at < count);
    size_t end = at + 1;
    while (end < count && nodes[end].depth > nodes[at].depth) end++;
    return end;
}

static bool is_array(const struct twi_node *node, int64_t least) {
    return node->type == TWI_NODE_ARRAY && node->integer >= least;
}

static bool read_slot(const struct twi_node *node, uint32_t *slot) {
    if (node->type != TWI_NODE_INTEGER || node->integer < 0 || node->integer >= TWI_KEY_SLOTS) return false;
    *slot = (uint32_t)node->integer;
    return true;
}

/* Returns true also if there is no id. */
static bool read_id(const struct twi_node *master, const char **id) {
    *id = "";
    if (master->integer <= ID_PART) return true;
    const struct twi_node *node = master + 1 + ID_PART;
    if (node->type != TWI_NODE_STRING || node->size >= TWI_NODE_ID_SIZE) return false;
    for (size_t i = 0; i < node->size; i++)
        if (node->text[i] <= ' ' || node->text[i] >= 127) return false;
    *id = node->text;
    return true;
}

/* Returns the host of a master. A node that should be named by a host name and has none is called "?"; its address is
 * then among the names and values after its id. */
static const struct twi_node *host_of(const struct twi_node *master) {
    twi_check(master->type == TWI_NODE_ARRAY && master->integer >= MASTER_PARTS);
    const struct twi_node *host = master + 1, *more = master + 1 + MORE_PART;
    if (!twi_node_is(host, "?") || master->integer <= MORE_PART || more->type != TWI_NODE_ARRAY) return host;
    for (int64_t i = 1; i < more->integer && more[i + 1].depth == more->depth + 1; i += 2) {
        if (more[i].depth != more->depth + 1) break; /* not names and values */
        if (twi_node_is(&more[i], "ip") && more[i + 1].type == TWI_NODE_STRING && more[i + 1].size != 0)
            return &more[i + 1];
    }
    return host;
}

/* Host, port and id come first, and they are no arrays. They lie side by side. */
static bool read_master(const struct twi_node *master, const struct twi_endpoint *asked, struct twi_slot_range *range) {
    if (!is_array(master, MASTER_PARTS)) return false;
    const struct twi_node *host = host_of(master), *port = master + 2;
    struct twi_endpoint endpoint;
    if ((host->type != TWI_NODE_STRING && host->type != TWI_NODE_NIL) || port->type != TWI_NODE_INTEGER) return false;
    enum twi_endpoint_found found = twi_endpoint_read(asked, host->text, host->size, port->integer, &endpoint);
    if (found == TWI_ENDPOINT_BAD || !read_id(master, &range->id)) return false;
    range->has_endpoint = found == TWI_ENDPOINT_HERE;
    if (!range->has_endpoint) return true;
    range->host = host->size ? host->text : asked->host;
    range->port = endpoint.port;
    return true;
}

bool twi_cluster_slots_next(const struct twi_node *nodes, size_t count, const struct twi_endpoint *asked, size_t *at,
                            struct twi_slot_range *range) {
    if (*at >= count || nodes[*at].depth != RANGE_DEPTH || !is_array(&nodes[*at], RANGE_PARTS)) return false;
    const struct twi_node *parts = &nodes[*at + 1];
    *range = (struct twi_slot_range){0};
    if (!read_slot(&parts[0], &range->first) || !read_slot(&parts[1], &range->last)) return false;
    if (range->first > range->last || !read_master(&parts[2], asked, range)) return false;
    *at = slots_end_of(nodes, count, *at);
    return true;
}

bool twi_cluster_slots_valid(const struct twi_node *nodes, size_t count, const struct twi_endpoint *asked) {
    uint8_t seen[TWI_KEY_SLOTS / 8] = {0};
    struct twi_slot_range range;
    size_t at = 1;
    if (count == 0 || !is_array(&nodes[0], 0)) return false;
    while (twi_cluster_slots_next(nodes, count, asked, &at, &range))
        for (uint32_t slot = range.first; slot <= range.last; slot++) {
            uint8_t bit = (uint8_t)(1u << slot % 8);
            if (seen[slot / 8] & bit) return false;
            seen[slot / 8] |= bit;
        }
    return at == count;
}

enum { FLAGS = 2, FIRST_SLOT = 8, ID_SIZE = 40 };

bool twi_slot_set_has(const struct twi_slot_set *set, uint32_t slot) {
    return (set->bits[slot / 8] & 1u << slot % 8) != 0;
}

void twi_slot_set_add(struct twi_slot_set *set, uint32_t slot) {
    set->bits[slot / 8] |= (uint8_t)(1u << slot % 8);
}

/* A word of a line. Its size is 0 if the line has ended. */
struct word {
    const char *text;
    size_t size;
};

static struct word next_word(const char **at) {
    *at += strspn(*at, " ");
    struct word word = {*at, strcspn(*at, " \r\n")};
    *at += word.size;
    return word;
}

static struct word word_at(const char *line, unsigned column) {
    struct word word = next_word(&line);
    while (column-- > 0 && word.size) word = next_word(&line);
    return word;
}

static const char *next_line(const char *line) {
    const char *end = strchr(line, '\n');
    return end && end[1] ? end + 1 : NULL;
}

static const char *own_line(const char *text) {
    for (const char *line = text; line; line = next_line(line)) {
        struct word flags = word_at(line, FLAGS);
        if (memmem(flags.text, flags.size, "myself", 6)) return line;
    }
    return NULL;
}

/* Reads a number below `limit` from the beginning of the word, and cuts it off. */
static bool read_number(struct word *word, uint32_t limit, uint32_t *number) {
    twi_check(limit != 0);
    size_t digits = 0;
    *number = 0;
    for (; digits < word->size && word->text[digits] >= '0' && word->text[digits] <= '9'; digits++) {
        *number = *number * 10 + (uint32_t)(word->text[digits] - '0');
        if (*number >= limit) return false;
    }
    *word = (struct word){word->text + digits, word->size - digits};
    return digits > 0;
}

/* [93->-id] or [77-<-id] */
static bool is_move(struct word word) {
    return word.size > 0 && word.text[0] == '[';
}

static bool read_move(struct word word, struct twi_own_slots *own) {
    twi_check(is_move(word));
    uint32_t slot;
    word.text++, word.size--;
    if (!read_number(&word, TWI_KEY_SLOTS, &slot) || word.size < 3 + 1) return false;
    bool comes = memcmp(word.text, "-<-", 3) == 0;
    if (!comes && memcmp(word.text, "->-", 3) != 0) return false;
    own->imports |= comes;
    twi_slot_set_add(&own->moves, slot);
    return true;
}

static bool read_range(struct word word, struct twi_own_slots *own) {
    twi_check(word.size != 0);
    uint32_t first, last;
    if (!read_number(&word, TWI_KEY_SLOTS, &first)) return false;
    last = first;
    if (word.size && word.text[0] == '-') {
        word.text++, word.size--;
        if (!read_number(&word, TWI_KEY_SLOTS, &last)) return false;
    }
    if (word.size || last < first) return false;
    for (; first <= last; first++) twi_slot_set_add(&own->serves, first);
    return true;
}

bool twi_cluster_nodes_own(const char *text, struct twi_own_slots *own) {
    const char *line = own_line(text);
    memset(own, 0, sizeof *own);
    if (!line) return false;
    for (int i = 0; i < FIRST_SLOT; i++)
        if (!next_word(&line).size) return false;
    for (struct word word = next_word(&line); word.size; word = next_word(&line))
        if (!(is_move(word) ? read_move(word, own) : read_range(word, own))) return false;
    return true;
}

/* Reads "host:port@bus", with more behind it. */
static bool read_address(struct word address, const struct twi_endpoint *asked, struct twi_endpoint *endpoint) {
    const char *at = memchr(address.text, '@', address.size);
    size_t size = at ? (size_t)(at - address.text) : address.size;
    const char *colon = memrchr(address.text, ':', size);
    uint32_t port;
    if (!colon) return false;
    struct word digits = {colon + 1, size - (size_t)(colon + 1 - address.text)};
    if (!read_number(&digits, 65536, &port) || digits.size) return false;
    return twi_endpoint_read(asked, address.text, (size_t)(colon - address.text), port, endpoint) == TWI_ENDPOINT_HERE;
}

static bool find_node(const char *text, struct word id, const struct twi_endpoint *asked,
                      struct twi_endpoint *endpoint) {
    twi_check(id.size == ID_SIZE);
    for (const char *line = text; line; line = next_line(line)) {
        struct word other = word_at(line, 0);
        if (other.size == id.size && memcmp(other.text, id.text, id.size) == 0)
            return read_address(word_at(line, 1), asked, endpoint);
    }
    return false;
}

bool twi_cluster_nodes_target(const char *text, const struct twi_endpoint *asked, size_t *at,
                              struct twi_endpoint *target) {
    const char *line = own_line(text);
    if (!line) return false;
    const char *rest = *at ? text + *at : line;
    for (struct word word = next_word(&rest); word.size; word = next_word(&rest)) {
        const char *arrow = is_move(word) ? memmem(word.text, word.size, "->-", 3) : NULL;
        if (!arrow) continue;
        struct word id = {arrow + 3, strcspn(arrow + 3, "] \n")};
        *at = (size_t)(rest - text);
        if (id.size == ID_SIZE && find_node(text, id, asked, target)) return true;
    }
    return false;
}

/* ---- redirect ---- */

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static const struct {
    const char *text; /* the first words, with the longer ones first */
    enum twi_redirect_kind kind;
} kinds[] = {
    {"MOVED", TWI_REDIRECT_MOVED},       {"ASK", TWI_REDIRECT_ASK},
    {"TRYAGAIN", TWI_REDIRECT_TRYAGAIN}, {"CLUSTERDOWN Hash slot not served", TWI_REDIRECT_UNSERVED},
    {"CLUSTERDOWN", TWI_REDIRECT_DOWN},  {"CROSSSLOT", TWI_REDIRECT_CROSSSLOT},
};

static const char non_local[] = "attempted to access a non local key";

static enum twi_redirect_kind redirect_kind_of(const struct twi_node *error) {
    twi_check(error->type == TWI_NODE_ERROR);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (twi_node_is(error, kinds[i].text)) return kinds[i].kind;
    return memmem(error->text, error->size, non_local, sizeof non_local - 1) ? TWI_REDIRECT_NON_LOCAL
                                                                             : TWI_REDIRECT_NONE;
}

/* Reads up to five digits from `*at`. */
static bool redirect_number(const char *text, size_t size, size_t *at, int64_t *value) {
    twi_check(*at <= size);
    size_t begin = *at;
    *value = 0;
    for (; *at < size && text[*at] >= '0' && text[*at] <= '9'; ++*at) {
        if (*at - begin == 5) return false;
        *value = *value * 10 + (text[*at] - '0');
    }
    return *at > begin;
}

/* Reads " slot host:port". The last colon ends the host, for an IPv6 address has others. */
static bool read_place(const struct twi_node *error, size_t at, const struct twi_endpoint *asked,
                       struct twi_redirect *redirect) {
    int64_t slot, port;
    if (at++ >= error->size || !redirect_number(error->text, error->size, &at, &slot)) return false;
    if (slot >= TWI_KEY_SLOTS || at >= error->size || error->text[at++] != ' ') return false;
    const char *host = error->text + at;
    const char *colon = memrchr(host, ':', error->size - at);
    if (!colon) return false;
    size_t host_size = (size_t)(colon - host), port_at = at + host_size + 1;
    if (!redirect_number(error->text, error->size, &port_at, &port) || port_at != error->size) return false;
    enum twi_endpoint_found found = twi_endpoint_read(asked, host, host_size, port, &redirect->to);
    redirect->slot = (uint32_t)slot;
    redirect->has_endpoint = found == TWI_ENDPOINT_HERE;
    return found != TWI_ENDPOINT_BAD;
}

void twi_redirect_read(const struct twi_node *error, const struct twi_endpoint *asked, struct twi_redirect *redirect) {
    memset(redirect, 0, sizeof *redirect);
    if (error->type != TWI_NODE_ERROR) return;
    redirect->kind = redirect_kind_of(error);
    bool has_place = redirect->kind == TWI_REDIRECT_MOVED || redirect->kind == TWI_REDIRECT_ASK;
    if (has_place && !read_place(error, strcspn(error->text, " "), asked, redirect))
        memset(redirect, 0, sizeof *redirect);
}

/* ---- how long to wait -------------------------------------------------------------------------------------------- */

/* The waits double from probe to probe. Each is uniform between a half and the whole of that, so that stores do not
 * come together. */
void twi_detour_hold(struct twi_detour *detour, int64_t now_ms, uint64_t random) {
    int64_t ceiling_ms = 2 * TWI_REDIRECT_PROBE_MS;
    for (uint32_t i = 0; i < detour->probes && ceiling_ms < TWI_REDIRECT_PROBE_MAX_MS; i++) ceiling_ms *= 2;
    if (ceiling_ms > TWI_REDIRECT_PROBE_MAX_MS) ceiling_ms = TWI_REDIRECT_PROBE_MAX_MS;
    if (detour->probes < UINT32_MAX) detour->probes++;
    detour->is_held = true;
    detour->again_ms = now_ms + ceiling_ms / 2 + (int64_t)(random % (uint64_t)(ceiling_ms / 2 + 1));
}

/* The first is followed at once. */
static void hop(struct twi_detour *detour, int64_t now_ms, uint64_t random) {
    twi_check(detour->hops <= TWI_REDIRECT_HOPS_MAX);
    if (detour->hops >= TWI_REDIRECT_HOPS_MAX) {
        twi_detour_hold(detour, now_ms, random);
        return;
    }
    detour->again_ms = detour->hops == 0 ? now_ms : now_ms + (TWI_REDIRECT_HOP_MS << (detour->hops - 1));
    detour->hops++;
}

void twi_detour_note(struct twi_detour *detour, enum twi_redirect_kind kind, int64_t now_ms, uint64_t random) {
    switch (kind) {
    case TWI_REDIRECT_NONE:
    case TWI_REDIRECT_NON_LOCAL: return;
    case TWI_REDIRECT_MOVED:
    case TWI_REDIRECT_ASK: hop(detour, now_ms, random); return;
    case TWI_REDIRECT_CROSSSLOT:
        detour->is_held = true;
        detour->again_ms = now_ms + TWI_REDIRECT_MISTAKE_MS;
        return;
    case TWI_REDIRECT_TRYAGAIN:
    case TWI_REDIRECT_UNSERVED:
    case TWI_REDIRECT_DOWN: twi_detour_hold(detour, now_ms, random); return;
    }
}

void twi_detour_end(struct twi_detour *detour) {
    *detour = (struct twi_detour){0};
}
