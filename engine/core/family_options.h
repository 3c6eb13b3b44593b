/* family_options.h -- the list of the options of a family: which of them identify the family, and which may change
 * while it is open. All code that handles the options one by one is made from this list: tw_family_open() of an open
 * family compares with it, tw_family_set() changes with it, and callers read with it.
 *   TEXT(field)         a string that identifies the family
 *   IDENTITY(field)     a number that identifies the family: tw_family_set() refuses another value
 *   POLICY(field, how)  an option that may change. STORED means that apply_policies() in family_open.c stores it into
 *                       family->policy. OTHER means that it is stored in another form or order, or not at all
 * Always true: the list has each field of tw_family_options, except the head of the struct. A test compares the list
 * with the comment of tw_family_set() in the header, and with docs/OPTIONS.md (tests/unit/core/family_options_test.c).
 * on_full is a policy; only whether it is TW_ON_FULL_EVICT_IDLE is identity. */
#ifndef TWI_CORE_FAMILY_OPTIONS_H
#define TWI_CORE_FAMILY_OPTIONS_H

#include "tallywheel.h"

#define TWI_FAMILY_IDENTITY(TEXT, IDENTITY) \
    TEXT(name) \
    IDENTITY(window) \
    IDENTITY(window_ms) \
    IDENTITY(utc_offset_ms) \
    IDENTITY(week_start) \
    TEXT(redis_key) \
    IDENTITY(redis_tags) \
    IDENTITY(redis_shape) \
    IDENTITY(key_separator) \
    TEXT(fields) \
    IDENTITY(kind) \
    IDENTITY(closed_by) \
    IDENTITY(limit_mode) \
    IDENTITY(limit_shape) \
    IDENTITY(sub_windows)

#define TWI_FAMILY_POLICIES(POLICY) \
    POLICY(lateness_ms, OTHER) \
    POLICY(earliness_ms, STORED) \
    POLICY(history_ms, OTHER) \
    POLICY(retention_ms, STORED) \
    POLICY(keys_max, OTHER) \
    POLICY(keys_expected, STORED) \
    POLICY(memory_share, OTHER) \
    POLICY(on_full, STORED) \
    POLICY(on_full_limit, STORED) \
    POLICY(idle_ms, STORED) \
    POLICY(on_window_closed, OTHER) \
    POLICY(closed_ctx, OTHER) \
    POLICY(burst, STORED) \
    POLICY(on_outage, STORED) \
    POLICY(outage_grace_ms, STORED) \
    POLICY(on_busy, OTHER) \
    POLICY(shadow, STORED)

#endif
