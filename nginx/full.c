/* full.c -- memory= and full= of a zone: how much memory it has, and what happens to new keys when that is used up.
 *   full=evict  the keys that cost least are forgotten, so new keys stay limited (docs/LIMITS.md, "A full table")
 *   full=deny   new keys are denied
 *   full=admit  new keys are admitted and not counted
 * Always true: a stock, a hold and a count never forget. A zone that evicts has memory of its own: the floods of other
 * zones do not fill it, nor its own flood theirs. */
#include "ngx_http_tallywheel.h"


/* A zone with less than this would have no room for two windows. */
#define NGX_HTTP_TALLYWHEEL_SHARE_LEAST  (256 * 1024)

/* One line in this time says that a zone is full. */
#define NGX_HTTP_TALLYWHEEL_FULL_MS  60000


const char *
ngx_http_tallywheel_full_parameter(ngx_str_t *argument, ngx_http_tallywheel_zone_t *zone)
{
    ssize_t    size;
    ngx_str_t  value;

    static const char *const  words[] = { "evict", "deny", "admit" };

    ngx_uint_t  i;

    if (argument->len > 7 && ngx_strncmp(argument->data, "memory=", 7) == 0) {
        value.data = argument->data + 7;
        value.len = argument->len - 7;
        size = ngx_parse_size(&value);
        zone->options.memory_share = (uint64_t) size;
        return (size == NGX_ERROR || size == 0) ? "the memory is a size, such as 4m" : NULL;
    }

    if (argument->len > 5 && ngx_strncmp(argument->data, "full=", 5) == 0) {
        for (i = 0; i < 3; i++) {
            if (argument->len - 5 == ngx_strlen(words[i])
                && ngx_strncmp(argument->data + 5, words[i], argument->len - 5) == 0)
            {
                zone->full = (ngx_http_tallywheel_full_e) (i + 1);
                return NULL;
            }
        }

        return "full= is evict, deny or admit";
    }

    return "";
}


/* Why a zone cannot forget keys, or NULL. */
static const char *
ngx_http_tallywheel_keeps(ngx_http_tallywheel_zone_t *zone, ngx_uint_t *uses, ngx_uint_t has_redis)
{
    if (uses[NGX_HTTP_TALLYWHEEL_HOLD]) {
        return "full=evict is not for tallywheel_hold: a slot in use cannot be forgotten";
    }

    if (uses[NGX_HTTP_TALLYWHEEL_COUNT]) {
        return "full=evict is not for tallywheel_count: its counts are never evicted";
    }

    if (zone->options.limit_mode != TW_LIMIT_SOFT) {
        return "full=evict is not for mode=hard and mode=strict: what an evicted key took could be sold again";
    }

    if (has_redis) {
        return "full=evict is not for zones with Redis";
    }

    if (zone->options.window == TW_WINDOW_FOREVER) {
        return "full=evict is not for window=forever: an evicted key would begin from 0";
    }

    return NULL;
}


static ngx_http_tallywheel_full_e
ngx_http_tallywheel_full_default(ngx_http_tallywheel_zone_t *zone, ngx_uint_t *uses, ngx_uint_t has_redis)
{
    if (ngx_http_tallywheel_keeps(zone, uses, has_redis) == NULL) {
        return NGX_HTTP_TALLYWHEEL_FULL_EVICT;
    }

    if (uses[NGX_HTTP_TALLYWHEEL_HOLD] || zone->options.limit_mode != TW_LIMIT_SOFT
        || (zone->options.window == TW_WINDOW_FOREVER && !has_redis && !uses[NGX_HTTP_TALLYWHEEL_COUNT]))
    {
        return NGX_HTTP_TALLYWHEEL_FULL_DENY;
    }

    return NGX_HTTP_TALLYWHEEL_FULL_ADMIT;
}


/* Every rule has its zone. */
char *
ngx_http_tallywheel_full(ngx_conf_t *cf, ngx_http_tallywheel_main_conf_t *mcf)
{
    ngx_uint_t                     i, k, uses[NGX_HTTP_TALLYWHEEL_KINDS];
    const char                    *why;
    ngx_http_tallywheel_zone_t   **zone = mcf->zones.elts;
    ngx_http_tallywheel_rule_t   **rule = mcf->rules.elts;

    for (i = 0; i < mcf->zones.nelts; i++) {
        ngx_memzero(uses, sizeof(uses));

        for (k = 0; k < mcf->rules.nelts; k++) {
            if (rule[k]->zone == zone[i]) {
                uses[rule[k]->kind] = 1;
            }
        }

        if (zone[i]->full == NGX_HTTP_TALLYWHEEL_FULL_EVICT) {
            why = ngx_http_tallywheel_keeps(zone[i], uses, mcf->server.url != NULL);
            if (why) {
                ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "tallywheel_zone \"%V\": %s in %V:%ui", &zone[i]->name, why,
                              &zone[i]->place.file, zone[i]->place.line);
                return NGX_CONF_ERROR;
            }
        }

        if (zone[i]->full == NGX_HTTP_TALLYWHEEL_FULL_UNSET) {
            zone[i]->full = ngx_http_tallywheel_full_default(zone[i], uses, mcf->server.url != NULL);
        }

        zone[i]->options.on_full = (zone[i]->full == NGX_HTTP_TALLYWHEEL_FULL_EVICT) ? TW_ON_FULL_EVICT_IDLE
                                                                                      : TW_ON_FULL_OVERFLOW;
        zone[i]->options.on_full_limit = (zone[i]->full == NGX_HTTP_TALLYWHEEL_FULL_ADMIT) ? TW_FULL_LIMIT_ADMIT
                                                                                            : TW_FULL_LIMIT_DENY;
    }

    return NGX_CONF_OK;
}


/* Zones with memory= have that. What they leave, of nearly seven eighths of the memory, has equal parts for all other
 * zones, and those that evict have theirs for themselves. Returns the bytes of such a part; 0 if it is too small. */
uint64_t
ngx_http_tallywheel_part(ngx_http_tallywheel_engine_t *e)
{
    uint64_t                       left, share, others;
    ngx_uint_t                     i;
    ngx_http_tallywheel_family_t  *family = e->families.elts;

    /* the engine's own memory is in it: less than a hundredth, and some segments of 64k */
    left = (uint64_t) e->server.memory / 100 * 86;
    left = (left > 262144) ? left - 262144 : 0;
    others = 0;

    for (i = 0; i < e->families.nelts; i++) {
        share = family[i].options.memory_share;
        left = (left > share) ? left - share : 0;
        others += (share == 0);
    }

    left = others ? left / others / 65536 * 65536 : 0;

    return (left >= NGX_HTTP_TALLYWHEEL_SHARE_LEAST) ? left : 0;
}


/* A request was decided without a count, because there was no room for one: it was admitted, or denied. */
void
ngx_http_tallywheel_note_full(ngx_http_tallywheel_rule_t *rule, ngx_uint_t denies, ngx_log_t *log)
{
    ngx_http_tallywheel_family_t  *home = rule->home;

    home->uncounted++;

    if (home->uncounted != 1 && (ngx_msec_int_t) (ngx_current_msec - home->said_full) < NGX_HTTP_TALLYWHEEL_FULL_MS) {
        return;
    }

    home->said_full = ngx_current_msec;
    ngx_log_error(NGX_LOG_WARN, log, 0, "tallywheel_zone \"%V\" is full and %s: %L in this worker so far; "
                  "memory=, keys= or tallywheel_memory is too small for its keys", &rule->zone_name,
                  denies ? "denies new keys" : "admits new keys without counting them", home->uncounted);
}
