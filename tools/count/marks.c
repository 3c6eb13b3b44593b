/* marks.c -- what `count --batch` remembers in Redis. See marks.h. */
#include "tools/count/marks.h"

#include <stdio.h>

#include "tools/common/tool.h"

#define FAMILY_NAME "count-batches"

bool marks_open(tw_engine *engine, tw_family **marks) {
    char error[256] = "";
    tw_family_options options;
    tw_family_options_init(&options);
    options.name = FAMILY_NAME;
    options.window = TW_WINDOW_FOREVER;
    options.limit_mode = TW_LIMIT_STRICT;
    options.on_outage = TW_OUTAGE_FAIL_CLOSED;
    options.error_text = error;
    options.error_size = sizeof error;
    tw_status status = tw_family_open(engine, &options, marks);
    if (status != TW_OK) tool_complain("--batch: %s", error[0] != '\0' ? error : tw_status_text(status));
    return status == TW_OK;
}

tw_key mark_key(enum mark mark, const char *name, char *text) {
    static const char *const words[] = {"begun", "done", "torn", "lock"};
    snprintf(text, MARK_KEY_MAX, "%s:%s", words[mark], name);
    return tw_str(text);
}
