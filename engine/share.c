/* share.c -- see share.h. */
#include "engine/share.h"

void twi_port_live(tw_engine *engine, uint32_t count) {
    twi_store_relaxed(&engine->live_engines, count);
    twi_stat_set(engine, offsetof(tw_stats, live_engines), count);
}
