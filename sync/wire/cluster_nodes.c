/* cluster_nodes.c -- see cluster_nodes.h. */
#include "sync/wire/cluster_nodes.h"

#include "engine/base/check.h"

#include <string.h>

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
