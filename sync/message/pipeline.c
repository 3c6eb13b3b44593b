/* pipeline.c -- see pipeline.h. */
#include "sync/message/pipeline.h"

#include "engine/base/check.h"

void twi_pipeline_begin(struct twi_pipeline *pipeline, int64_t now_ms) {
    if (pipeline->out.size == 0) pipeline->out_moved_ms = now_ms;
}

struct twi_pending *twi_pipeline_at(struct twi_pipeline *pipeline, uint32_t i) {
    twi_check(i < TWI_PENDING_MAX);
    return &pipeline->pending[(pipeline->first + i) % TWI_PENDING_MAX];
}

struct twi_pending *twi_pipeline_await(struct twi_pipeline *pipeline, enum twi_command command, struct twi_batch *batch,
                                       uint32_t replies) {
    twi_check(replies != 0 && command < TWI_COMMANDS);
    twi_check(pipeline->count < TWI_PENDING_MAX);
    bool alone = pipeline->count == 0;
    struct twi_pending *pending = twi_pipeline_at(pipeline, pipeline->count++);
    *pending = (struct twi_pending){.command = command, .batch = batch, .replies = replies, .alone = alone};
    pending->out_begin = pipeline->out_end;
    pending->out_end = pipeline->out_end = twi_pipeline_end(pipeline);
    return pending;
}

struct twi_pending twi_pipeline_take(struct twi_pipeline *pipeline) {
    twi_check(pipeline->count != 0 && pipeline->pending[pipeline->first].replies != 0);
    struct twi_pending *oldest = twi_pipeline_at(pipeline, 0), taken = *oldest;
    if (--oldest->replies == 0) {
        pipeline->first = (pipeline->first + 1) % TWI_PENDING_MAX;
        pipeline->count--;
    }
    return taken;
}

int64_t twi_pipeline_awaited_since_ms(const struct twi_pipeline *pipeline) {
    twi_check(pipeline->first < TWI_PENDING_MAX);
    return pipeline->count == 0 ? 0 : pipeline->pending[pipeline->first].sent_ms;
}

uint64_t twi_pipeline_end(const struct twi_pipeline *pipeline) {
    twi_check(pipeline->out_at <= pipeline->out.size);
    return pipeline->out_sent + (pipeline->out.size - pipeline->out_at);
}

uint64_t twi_pending_bytes(const struct twi_pending *pending) {
    twi_check(pending->out_begin <= pending->out_end);
    return pending->out_end - pending->out_begin;
}

bool twi_pipeline_is_sent(const struct twi_pipeline *pipeline) {
    twi_check(pipeline->out_at <= pipeline->out.size);
    return pipeline->out_at == pipeline->out.size;
}

void twi_pipeline_clear(struct twi_pipeline *pipeline) {
    twi_check(pipeline->count <= TWI_PENDING_MAX);
    pipeline->count = 0;
    twi_bytes_wipe(&pipeline->out);
    pipeline->out.failed = false;
    pipeline->out_at = 0;
    twi_reader_free(pipeline->reader);
    pipeline->reader = NULL;
}
