/* save.h -- the contract between the engine and tw_save(), tw_load() (extras/save.c): the engine shows the counters
 * that belong into a file, and takes those of a file. How the file looks is not its concern.
 * Always true: nothing here opens a file. A family that is shown, or was found for a file, is not freed meanwhile.
 * Threads: any, one at a time for each visit and each loading. */
#ifndef TWI_PORT_SAVE_H
#define TWI_PORT_SAVE_H

#include "tallywheel.h"

/* What decides which windows a family has, and what its counts mean. Counters go into a family with the same name and
 * the same values only. engine/save.c has the names of the fields. */
#define TWI_SAVED_FIELDS 9u
struct twi_saved_family {
    char name[65];
    int64_t fields[TWI_SAVED_FIELDS];
};

/* ---- saving ---- */

/* What the closing hook of the process that counted a window has got. */
enum twi_saved_report {
    TWI_UNREPORTED,    /* nothing yet, or a part: who loads the window reports it as final */
    TWI_REPORTED,      /* all of it, as final: the window is saved for a sliding limit alone */
    TWI_REPORT_UNKNOWN /* a file of format 1 does not say it */
};

/* Is called in this order: families, which have numbers from 0 on, then windows, each with its counters, then finish(),
 * if nothing has failed. A window, and a counter of it, may come several times: counts add up. A key of size 0 is the
 * overflow counter. Outside of any section. Each returns false to end the visit. */
struct twi_save_visitor {
    void *ctx;
    bool (*family)(void *ctx, const struct twi_saved_family *family);
    bool (*window)(void *ctx, uint32_t family, int64_t start_ms, enum twi_saved_report report);
    bool (*counter)(void *ctx, tw_key key, int64_t count);
    /* Returns true if the file is whole and at its place. From then on its windows are PARTIAL in this process. */
    bool (*finish)(void *ctx);
};

/* Shows the engine's counters as tw_save() promises. TW_OK also if the visitor ended it. Otherwise it is a refusal with
 * its reason, before the first call of the visitor, or TW_ERR_MEMORY. If all was shown and finish() returned true,
 * tw_error_text() and a line of the log name the families that were left out. */
tw_status twi_save_visit(tw_engine *engine, const struct twi_save_visitor *visitor);

/* ---- loading ----
 * First all families, windows and counters of the file are checked, then its windows and counters come once more and
 * are counted. */

struct twi_loading;
tw_status twi_load_begin(tw_engine *engine, struct twi_loading **loading);
/* The next family. Refused if it is not open, not alike, or has counted. */
tw_status twi_load_family(struct twi_loading *loading, const struct twi_saved_family *saved);
/* The window of the next counters. Refused if there is no such family or window. */
tw_status twi_load_window(struct twi_loading *loading, uint32_t family, int64_t start_ms, enum twi_saved_report report);
/* Refused if the family could not have such a counter, or if its window lies too far ahead. */
tw_status twi_load_check(struct twi_loading *loading, tw_key key, int64_t count);
tw_status twi_load_add(struct twi_loading *loading, tw_key key, int64_t count);
/* Ends it. After an error no count has changed, and it may be repeated. TW_OVERFLOWED if some counts are in an overflow
 * counter because there was no room for their keys; otherwise `status`. */
tw_status twi_load_end(struct twi_loading *loading, tw_status status);

#endif
