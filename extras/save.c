/* save.c -- tw_save() and tw_load(). See save.h. */
#include "extras/save.h"

#include "engine/base/check.h"
#include "engine/base/why.h"

#include <stdlib.h>
#include <unistd.h>

tw_status tw_save(tw_engine *engine, const char *path) {
    TWI_NEED(engine);
    TWI_NEED(path);
    struct twi_save_out *out = malloc(sizeof *out);
    if (out == NULL) return twi_refuse(TW_ERR_MEMORY, NULL);
    tw_status status = twi_save_create(out, path);
    if (status == TW_OK) {
        struct twi_save_visitor writer = twi_save_writer;
        writer.ctx = out;
        (void)twi_save_put_head(out); /* if it fails, so does all that follows */
        status = twi_save_visit(engine, &writer);
        twi_save_end(out);
        if (status == TW_OK) status = out->is_there ? twi_save_sync_folder(path) : TW_ERR_OPTIONS;
    }
    free(out);
    return status;
}

static tw_status load(tw_engine *engine, struct twi_save_in *in) {
    struct twi_loading *loading = NULL;
    tw_status status = twi_save_read_head(in);
    if (status == TW_OK) status = twi_save_check_sum(in);
    if (status == TW_OK) status = twi_load_begin(engine, &loading);
    if (status != TW_OK) return status;
    status = twi_save_check_all(in, loading);
    if (status == TW_OK) status = twi_save_count_all(in, loading);
    return twi_load_end(loading, status);
}

tw_status tw_load(tw_engine *engine, const char *path) {
    TWI_NEED(engine);
    TWI_NEED(path);
    struct twi_save_in *in = malloc(sizeof *in);
    if (in == NULL) return twi_refuse(TW_ERR_MEMORY, NULL);
    tw_status status = twi_save_open(in, path);
    if (status == TW_OK) {
        status = load(engine, in);
        close(in->fd);
    }
    free(in);
    return status;
}
