/* closing_tags.c -- see closing_tags.h. */
#include "engine/turn/closing_tags.h"

#include <stdlib.h>
#include <string.h>

#define PAGE 64u /* how many names of one group may wait; with 128 tags, all groups use 32 KiB */
#define NONE UINT32_MAX

bool twi_closing_tags_are_used(const struct tw_family *family) {
    return family->template.tags != NULL && family->engine->peers.stores != NULL;
}

struct twi_closing_tags *twi_closing_tags_create(void) {
    return calloc(1, sizeof(struct twi_closing_tags));
}

static void free_pages(struct twi_closing_tags *tags) {
    free(tags->counts);
    free(tags->lines);
    tags->counts = NULL;
    tags->lines = NULL;
}

void twi_closing_tags_free(struct twi_closing_tags *tags) {
    if (tags == NULL) return;
    free_pages(tags);
    free(tags);
}

/* ---- groups ---- */

static void put(struct twi_closing_groups *groups, uint32_t group) {
    twi_check(group < TWI_KEY_SLOT_TAGS_MAX);
    groups->words[group / 64] |= UINT64_C(1) << (group % 64);
}

static void take(struct twi_closing_groups *groups, uint32_t group) {
    twi_check(group < TWI_KEY_SLOT_TAGS_MAX);
    groups->words[group / 64] &= ~(UINT64_C(1) << (group % 64));
}

/* Returns the first group, or NONE if no group is left. */
static uint32_t first_of(const struct twi_closing_groups *groups) {
    for (uint32_t i = 0; i < TWI_CLOSING_TAGS_WORDS; i++)
        if (groups->words[i] != 0) return i * 64 + (uint32_t)__builtin_ctzll(groups->words[i]);
    return NONE;
}

void twi_closing_tags_note(struct twi_closing_tags *tags, const struct tw_family *family, tw_key member) {
    const char *digits = member.data;
    uint32_t group = 0;
    if (member.size == 0 || member.size > TWI_KEY_SLOT_TAG_DIGITS) return;
    for (size_t i = 0; i < member.size; i++) {
        if (digits[i] < '0' || digits[i] > '9') return;
        group = group * 10 + (uint32_t)(digits[i] - '0');
    }
    if (group < family->template.tag_count) put(&tags->found, group);
}

void twi_closing_tags_do_found(struct twi_closing_tags *tags, const struct tw_family *family) {
    tags->left = tags->found;
    for (uint32_t group = 0; tags->reads_all && group < family->template.tag_count; group++) put(&tags->left, group);
    tags->failing_ms = 0;
}

void twi_closing_tags_found(struct twi_closing_tags *tags) {
    put(&tags->found, tags->group);
}

void twi_closing_tags_do_own(struct twi_closing_tags *tags) {
    tags->left = tags->own;
    tags->failing_ms = 0;
}

bool twi_closing_tags_next(struct twi_closing_tags *tags) {
    tags->group = first_of(&tags->left);
    return tags->group != NONE;
}

void twi_closing_tags_done(struct twi_closing_tags *tags) {
    take(&tags->left, tags->group);
    tags->failing_ms = 0;
}

/* ---- adding names ---- */

void twi_closing_tags_reset(struct twi_closing_tags *tags) {
    free_pages(tags);
    tags->own = tags->left = tags->lost = (struct twi_closing_groups){{0}};
    tags->sent = 0;
    tags->failing_ms = tags->pause_ms = 0;
    tags->relists = false;
}

static bool has_pages(struct twi_closing_tags *tags, const struct tw_family *family) {
    twi_check(family->template.tag_count != 0);
    twi_check((tags->counts == NULL) == (tags->lines == NULL));
    uint32_t count = family->template.tag_count;
    if (tags->counts != NULL) return true;
    tags->counts = calloc(count, sizeof *tags->counts);
    tags->lines = malloc((size_t)count * PAGE * sizeof *tags->lines);
    if (tags->counts != NULL && tags->lines != NULL) return true;
    free_pages(tags);
    return false;
}

struct sort {
    struct twi_closing_tags *tags;
    struct twi_generation *generation;
    uint32_t full; /* a group whose page is full; NONE means that no page is full */
};

static bool sort_name(void *ctx, struct twi_cell *cell, uint64_t meta) {
    struct sort *sort = ctx;
    struct twi_closing_tags *tags = sort->tags;
    const struct twi_cold *cold = twi_cell_cold(cell, meta);
    const struct tw_family *family = sort->generation->family;
    if (twi_cell_local(cell, meta) == 0 && twi_load_relaxed(&cold->acked) == 0) return true; /* it was only read */
    uint32_t group = twi_key_template_group(&family->template, tw_bytes(cell->key, meta & TWI_META_SIZE));
    if ((tags->lost.words[group / 64] >> (group % 64) & 1) != 0) return true;
    tags->lines[group * PAGE + tags->counts[group]++] = twi_arena_line(&family->engine->arena, cell);
    put(&tags->own, group);
    if (tags->counts[group] == PAGE) sort->full = group;
    return sort->full == NONE;
}

/* Returns the group whose names are sent next. Its page is full; after all keys were walked, any group may be next. */
static uint32_t pick(const struct twi_closing_tags *tags, const struct tw_family *family, bool is_walked) {
    uint32_t some = NONE;
    for (uint32_t group = 0; group < family->template.tag_count; group++) {
        if (tags->counts[group] == PAGE) return group;
        if (some == NONE && tags->counts[group] != 0) some = group;
    }
    return is_walked ? some : NONE;
}

static void put_names(struct twi_closing_tags *tags, const struct tw_family *family,
                      struct twi_closing_message *message) {
    twi_check(tags->counts != NULL && tags->counts[tags->group] != 0);
    twi_check(message->name_count == 0);
    size_t bytes = 0;
    message->group = tags->group;
    tags->sent = 0;
    for (uint32_t i = 0; i < tags->counts[tags->group]; i++) {
        struct twi_cell *cell = twi_arena_at(&family->engine->arena, tags->lines[tags->group * PAGE + i]);
        size_t size = twi_load_relaxed(&cell->meta) & TWI_META_SIZE;
        if (bytes + size > TWI_CLOSING_NAMES_BYTES_MAX) break;
        message->names[message->name_count++] = tw_bytes(cell->key, size);
        bytes += size;
    }
    tags->sent = message->name_count;
}

bool twi_closing_tags_fill(struct twi_closing_tags *tags, struct twi_generation *generation, struct twi_cursor *cursor,
                           struct twi_closing_message *message) {
    twi_check(twi_closing_tags_are_used(generation->family));
    const struct tw_family *family = generation->family;
    struct sort sort = {tags, generation, NONE};
    if (!has_pages(tags, family)) return false;
    tags->group = pick(tags, family, cursor->done);
    if (tags->group == NONE && !cursor->done) {
        cursor->looks = TWI_WORK_TURN;
        twi_table_walk(&family->engine->arena, generation, cursor, sort_name, &sort);
        tags->group = sort.full != NONE ? sort.full : pick(tags, family, cursor->done);
    }
    if (tags->group == NONE) return false;
    put_names(tags, family, message);
    return true;
}

void twi_closing_tags_added(struct twi_closing_tags *tags) {
    twi_check(tags->sent == 0 || tags->counts == NULL || tags->sent <= tags->counts[tags->group]);
    if (tags->sent == 0 || tags->counts == NULL) return;
    uint32_t *lines = tags->lines + tags->group * PAGE;
    tags->counts[tags->group] = (uint16_t)(tags->counts[tags->group] - tags->sent);
    memmove(lines, lines + tags->sent, tags->counts[tags->group] * sizeof *lines);
    tags->sent = 0;
    tags->failing_ms = 0;
}

void twi_closing_tags_skip(struct twi_closing_tags *tags) {
    if (tags->counts != NULL) tags->counts[tags->group] = 0;
    put(&tags->lost, tags->group);
    tags->sent = 0;
    tags->failing_ms = 0;
}

/* ---- the index ---- */

void twi_closing_tags_confirm(struct twi_closing_tags *tags) {
    free_pages(tags);
    twi_closing_tags_do_own(tags);
}

bool twi_closing_tags_fill_index(struct twi_closing_tags *tags, struct twi_closing_message *message) {
    twi_check(message->name_count == 0);
    struct twi_closing_groups left = tags->left;
    uint32_t group;
    while (message->name_count < TWI_CLOSING_NAMES_MAX && (group = first_of(&left)) != NONE) {
        char *text = tags->texts[message->name_count];
        message->names[message->name_count++] = tw_bytes(text, twi_key_slot_decimal(group, text));
        take(&left, group);
    }
    tags->sent = message->name_count;
    return message->name_count != 0;
}

void twi_closing_tags_confirmed(struct twi_closing_tags *tags) {
    for (; tags->sent != 0; tags->sent--) take(&tags->left, first_of(&tags->left));
    tags->failing_ms = 0;
}
