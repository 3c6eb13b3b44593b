/* ask.c -- see ask.h. */
#include "engine/ask.h"

#include <inttypes.h>
#include <stdio.h>

tw_status twi_ask_may(tw_engine *engine) {
    tw_status status = twi_engine_may_wait(engine);
    if (status != TW_OK) return status;
    if (engine->host_driven) return TW_ERR_MODE;
    return engine->sync == NULL || engine->driver->ask == NULL ? TW_ERR_STORE : TW_OK;
}

void twi_asking_begin(struct twi_asking *asking, tw_engine *engine, enum twi_script script, uint32_t timeout_ms) {
    if (timeout_ms == 0) timeout_ms = engine->options.redis_timeout_ms;
    asking->used = 0;
    asking->ask = (struct twi_ask){.script = script, .keys = asking->keys, .args = asking->args};
    asking->ask.deadline_ms = twi_clock_mono_ms(&engine->clock) + timeout_ms;
}

static char *room(struct twi_asking *asking, size_t size) {
    twi_check(asking->used + size <= sizeof asking->text);
    return asking->text + asking->used;
}

void twi_asking_key(struct twi_asking *asking, const tw_family *family, const char *what, tw_key key,
                    int64_t start_ms) {
    char name[TWI_REDIS_KEY_MAX], *out = room(asking, TWI_ASK_NAME_MAX);
    size_t size = twi_template_render(&family->template, key, start_ms, what != NULL ? name : out);
    if (what != NULL) size = twi_template_own(&family->template, what, name, size, out);
    asking->keys[asking->ask.key_count++] = tw_bytes(out, size);
    asking->used += size;
}

void twi_asking_text(struct twi_asking *asking, const char *text) {
    size_t size = strlen(text) + 1;
    char *out = room(asking, size);
    memcpy(out, text, size);
    asking->used += size;
    asking->args[asking->ask.arg_count++] = tw_bytes(out, size - 1);
}

void twi_asking_number(struct twi_asking *asking, int64_t number) {
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRId64, number);
    twi_asking_text(asking, text);
}

enum twi_asked twi_asking_do(struct twi_asking *asking, tw_engine *engine) {
    return engine->driver->ask(engine->sync, &asking->ask);
}

bool twi_asking_said(const struct twi_asking *asking, const char *word) {
    return asking->ask.said_count != 0 && strcmp(asking->ask.said[0].text, word) == 0;
}

int64_t twi_asking_told(const struct twi_asking *asking, size_t index) {
    return index < asking->ask.said_count && asking->ask.said[index].is_number ? asking->ask.said[index].number : 0;
}
