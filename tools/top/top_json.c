/* top_json.c -- looks at an engine as JSON, one object a line. See top.h. docs/WATCH.md lists the members. */
#include <stdio.h>
#include <string.h>

#include "tools/common/foreign.h"
#include "tools/top/top.h"

static void put_string(struct sink *sink, const char *text) {
    (void)foreign_json(sink, text, strlen(text));
}

static void json_put_name(struct sink *sink, const char *name, bool first) {
    if (!first) sink_byte(sink, ',');
    put_string(sink, name);
    sink_byte(sink, ':');
}

static void json_put_member(struct sink *sink, const char *name, int64_t value) {
    json_put_name(sink, name, false);
    sink_number(sink, value);
}

static void json_put_rate(struct sink *sink, const char *name, bool known, double rate) {
    char text[40];
    if (!known) return;
    (void)snprintf(text, sizeof text, "%.3f", rate);
    json_put_name(sink, name, false);
    sink_text(sink, text);
}

/* Endless windows have no end. */
static void put_window(struct sink *sink, int64_t start_ms, int64_t end_ms) {
    json_put_member(sink, "start_ms", start_ms);
    json_put_name(sink, "end_ms", false);
    if (end_ms == INT64_MAX)
        sink_text(sink, "null");
    else
        sink_number(sink, end_ms);
}

static void json_put_family(struct sink *sink, const struct watched_family *family) {
    sink_text(sink, "{\"name\":");
    put_string(sink, family->name);
    json_put_name(sink, "kind", false);
    put_string(sink, family->kind);
    json_put_name(sink, "window", false);
    put_string(sink, family->window);
    json_put_member(sink, "window_ms", family->window_ms);
    put_window(sink, family->start_ms, family->end_ms);
    json_put_name(sink, "limit_mode", false);
    put_string(sink, family->limit_mode);
    json_put_name(sink, "redis_shape", false);
    put_string(sink, family->redis_shape);
    json_put_member(sink, "windows", family->windows);
    json_put_member(sink, "keys", family->keys);
    json_put_member(sink, "admitted", family->admitted);
    json_put_member(sink, "denied", family->denied);
    json_put_member(sink, "near", family->near);
    json_put_member(sink, "shadow_denied", family->shadow_denied);
    sink_byte(sink, '}');
}

static void json_put_key(struct sink *sink, const struct top_view *view, const struct watched_key *key) {
    double rate = 0;
    sink_byte(sink, '{');
    foreign_json_key(sink, key->key, key->size);
    json_put_member(sink, "view", key->view);
    json_put_member(sink, "local", key->local);
    json_put_member(sink, "error", key->error);
    put_window(sink, key->start_ms, key->end_ms);
    bool known = top_key_rate(view, key, &rate);
    json_put_rate(sink, "per_s", known, rate);
    sink_byte(sink, '}');
}

static void json_put_top(struct sink *sink, const struct top_view *view) {
    json_put_name(sink, "top", false);
    sink_text(sink, "{\"family\":");
    put_string(sink, view->family);
    if (view->now->top_error != NULL) {
        json_put_name(sink, "error", false);
        put_string(sink, view->now->top_error);
    }
    sink_text(sink, ",\"keys\":[");
    for (size_t i = 0; i < view->now->key_count; i++) {
        if (i > 0) sink_byte(sink, ',');
        json_put_key(sink, view, &view->now->keys[i]);
    }
    sink_text(sink, "]}");
}

static void json_put_stats(struct sink *sink, const struct top_view *view) {
    double rate = 0;
    json_put_name(sink, "last_error", false);
    put_string(sink, view->now->last_error);
    if (view->now->last_error_age_ms >= 0) json_put_member(sink, "last_error_age_ms", view->now->last_error_age_ms);
    bool known = top_rate(view, "increments", &rate);
    json_put_rate(sink, "increments_per_s", known, rate);
    json_put_name(sink, "stats", false);
    sink_byte(sink, '{');
    for (size_t i = 0; i < view->now->stat_count; i++) {
        json_put_name(sink, view->now->stats[i].name, i == 0);
        sink_number(sink, view->now->stats[i].value);
    }
    sink_byte(sink, '}');
}

void top_json(struct sink *sink, const struct top_view *view, bool whole) {
    bool first = true;
    sink_text(sink, "{\"version\":");
    put_string(sink, view->now->version);
    json_put_member(sink, "process", view->now->process);
    json_put_member(sink, "now_ms", view->now->now_ms);
    if (whole) json_put_stats(sink, view);
    sink_text(sink, ",\"families\":[");
    for (size_t i = 0; i < view->now->family_count; i++) {
        bool shown = whole || strcmp(view->now->families[i].name, view->family) == 0;
        if (shown && !first) sink_byte(sink, ',');
        if (shown) json_put_family(sink, &view->now->families[i]);
        first = first && !shown;
    }
    sink_byte(sink, ']');
    if (view->family != NULL) json_put_top(sink, view);
    sink_text(sink, "}\n");
}
