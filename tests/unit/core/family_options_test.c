/* family_options_test.c -- the list of a family's options (family.h) has all of them, and so have the pages. */
#include "tests/unit/rig.h"

#include "engine/core/family.h"

static const char *const identity[] = {
#define NAME(field) #field,
    TWI_FAMILY_IDENTITY(NAME, NAME)
#undef NAME
};
static const char *const policies[] = {
#define NAME(field, how) #field,
    TWI_FAMILY_POLICIES(NAME)
#undef NAME
};
#define IDENTITY_COUNT (sizeof identity / sizeof *identity)
#define POLICY_COUNT (sizeof policies / sizeof *policies)

static struct rig rig;
static char text[300000];

/* From one text to the next one after it. */
static char *part_of(char *from, const char *first, const char *last) {
    char *begin = strstr(from, first);
    assert_non_null(begin);
    char *end = strstr(begin, last);
    assert_non_null(end);
    *end = '\0';
    return begin;
}

static void leave_comments_out(char *code) {
    char *to = code;
    for (const char *at = code; *at != '\0';) {
        const char *end = strncmp(at, "/*", 2) == 0 ? strstr(at, "*/") : NULL;
        if (end != NULL)
            at = end + 2;
        else
            *to++ = *at++;
    }
    *to = '\0';
}

static bool has_word(const char *within, const char *word) {
    size_t size = strlen(word);
    for (const char *at = within; (at = strstr(at, word)) != NULL; at += size)
        if (strchr("_abcdefghijklmnopqrstuvwxyz", at[size]) == NULL &&
            strchr("_abcdefghijklmnopqrstuvwxyz", at[-1]) == NULL)
            return true;
    return false;
}

/* Goal: a field that is new in the header is in the list. Method: the struct has as many fields as the list and its
 * head, and each of the list's names is one of them (the product would not compile otherwise). */
TEST(the_list_has_each_field_of_the_struct) {
    test_read_source("include/tallywheel.h", text, sizeof text);
    char *fields = part_of(text, "struct tw_family_options {", "\n}");
    leave_comments_out(fields);
    size_t count = 0;
    for (const char *at = fields; *at != '\0'; at++) count += *at == ';';
    assert_int_equal(count, IDENTITY_COUNT + POLICY_COUNT + 3); /* size, error_text, error_size */
}

/* Goal: the comment of tw_family_set() names what may not change. */
TEST(the_header_names_each_option_that_may_not_change) {
    test_read_source("include/tallywheel.h", text, sizeof text);
    char *end = strstr(text, "tw_family_set(tw_family *");
    assert_non_null(end);
    *end = '\0';
    char *comment = strstr(text, "/** Changes policies");
    assert_non_null(comment);
    for (size_t i = 0; i < IDENTITY_COUNT; i++)
        if (!has_word(comment, identity[i])) fail_msg("the comment of tw_family_set() lacks %s", identity[i]);
    assert_true(has_word(comment, "on_full"));
}

/* Goal: docs/OPTIONS.md explains each of them. */
TEST(the_page_names_each_option) {
    test_read_source("docs/OPTIONS.md", text, sizeof text);
    for (size_t i = 0; i < IDENTITY_COUNT; i++)
        if (!has_word(text, identity[i])) fail_msg("docs/OPTIONS.md lacks %s", identity[i]);
    for (size_t i = 0; i < POLICY_COUNT; i++)
        if (!has_word(text, policies[i])) fail_msg("docs/OPTIONS.md lacks %s", policies[i]);
}

/* Goal: each policy is taken over by tw_family_set(). Method: an option is set to another value; afterwards a family of
 * that name with the old value is another one. */
RIG_TEST(each_number_among_the_policies_is_taken_over) {
    tw_family_options before = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    tw_family_options now = before;
    tw_family *family = rig_family_of(&rig, &before), *other;
    now.lateness_ms = now.earliness_ms = now.history_ms = TW_HOUR;
    now.retention_ms = 3 * TW_DAY;
    now.keys_max = 5;
    now.keys_expected = 4;
    now.memory_share = UINT64_C(1) << 16;
    now.on_full = TW_ON_FULL_REJECT;
    now.on_full_limit = 1;
    now.closed_ctx = &rig;
    now.on_busy = TW_BUSY_AS_OUTAGE;
    now.shadow = true;
    assert_status(tw_family_set(family, &now), TW_OK);
    assert_status(tw_family_open(rig.engine, &now, &other), TW_OK);
    assert_ptr_equal(other, family);
    assert_status(tw_family_close(other), TW_OK);
#define POLICY(field, how) \
    if (memcmp(&before.field, &now.field, sizeof now.field) != 0) { \
        tw_family_options one = now; \
        one.field = before.field; \
        assert_status(tw_family_open(rig.engine, &one, &other), TW_ERR_OPTIONS); \
        assert_non_null(strstr(tw_error_text(), #field)); \
    }
    TWI_FAMILY_POLICIES(POLICY)
#undef POLICY
}
