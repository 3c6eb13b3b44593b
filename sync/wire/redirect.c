/* redirect.c -- see redirect.h. */
#include "sync/wire/redirect.h"

#include <string.h>

#include "engine/base/check.h"
#include "engine/base/key_slot.h"

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static const struct {
    const char *text; /* the first words, with the longer ones first */
    enum twi_redirect_kind kind;
} kinds[] = {
    {"MOVED", TWI_REDIRECT_MOVED},       {"ASK", TWI_REDIRECT_ASK},
    {"TRYAGAIN", TWI_REDIRECT_TRYAGAIN}, {"CLUSTERDOWN Hash slot not served", TWI_REDIRECT_UNSERVED},
    {"CLUSTERDOWN", TWI_REDIRECT_DOWN},  {"CROSSSLOT", TWI_REDIRECT_CROSSSLOT},
};

static const char non_local[] = "attempted to access a non local key";

static enum twi_redirect_kind redirect_kind_of(const struct twi_node *error) {
    twi_check(error->type == TWI_NODE_ERROR);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (twi_node_is(error, kinds[i].text)) return kinds[i].kind;
    return memmem(error->text, error->size, non_local, sizeof non_local - 1) ? TWI_REDIRECT_NON_LOCAL
                                                                             : TWI_REDIRECT_NONE;
}

/* Reads up to five digits from `*at`. */
static bool redirect_number(const char *text, size_t size, size_t *at, int64_t *value) {
    twi_check(*at <= size);
    size_t begin = *at;
    *value = 0;
    for (; *at < size && text[*at] >= '0' && text[*at] <= '9'; ++*at) {
        if (*at - begin == 5) return false;
        *value = *value * 10 + (text[*at] - '0');
    }
    return *at > begin;
}

/* Reads " slot host:port". The last colon ends the host, for an IPv6 address has others. */
static bool read_place(const struct twi_node *error, size_t at, const struct twi_endpoint *asked,
                       struct twi_redirect *redirect) {
    int64_t slot, port;
    if (at++ >= error->size || !redirect_number(error->text, error->size, &at, &slot)) return false;
    if (slot >= TWI_KEY_SLOTS || at >= error->size || error->text[at++] != ' ') return false;
    const char *host = error->text + at;
    const char *colon = memrchr(host, ':', error->size - at);
    if (!colon) return false;
    size_t host_size = (size_t)(colon - host), port_at = at + host_size + 1;
    if (!redirect_number(error->text, error->size, &port_at, &port) || port_at != error->size) return false;
    enum twi_endpoint_found found = twi_endpoint_read(asked, host, host_size, port, &redirect->to);
    redirect->slot = (uint32_t)slot;
    redirect->has_endpoint = found == TWI_ENDPOINT_HERE;
    return found != TWI_ENDPOINT_BAD;
}

void twi_redirect_read(const struct twi_node *error, const struct twi_endpoint *asked, struct twi_redirect *redirect) {
    memset(redirect, 0, sizeof *redirect);
    if (error->type != TWI_NODE_ERROR) return;
    redirect->kind = redirect_kind_of(error);
    bool has_place = redirect->kind == TWI_REDIRECT_MOVED || redirect->kind == TWI_REDIRECT_ASK;
    if (has_place && !read_place(error, strcspn(error->text, " "), asked, redirect))
        memset(redirect, 0, sizeof *redirect);
}

/* ---- how long to wait -------------------------------------------------------------------------------------------- */

/* The waits double from probe to probe. Each is uniform between a half and the whole of that, so that stores do not
 * come together. */
void twi_detour_hold(struct twi_detour *detour, int64_t now_ms, uint64_t random) {
    int64_t ceiling_ms = 2 * TWI_REDIRECT_PROBE_MS;
    for (uint32_t i = 0; i < detour->probes && ceiling_ms < TWI_REDIRECT_PROBE_MAX_MS; i++) ceiling_ms *= 2;
    if (ceiling_ms > TWI_REDIRECT_PROBE_MAX_MS) ceiling_ms = TWI_REDIRECT_PROBE_MAX_MS;
    if (detour->probes < UINT32_MAX) detour->probes++;
    detour->is_held = true;
    detour->again_ms = now_ms + ceiling_ms / 2 + (int64_t)(random % (uint64_t)(ceiling_ms / 2 + 1));
}

/* The first is followed at once. */
static void hop(struct twi_detour *detour, int64_t now_ms, uint64_t random) {
    twi_check(detour->hops <= TWI_REDIRECT_HOPS_MAX);
    if (detour->hops >= TWI_REDIRECT_HOPS_MAX) {
        twi_detour_hold(detour, now_ms, random);
        return;
    }
    detour->again_ms = detour->hops == 0 ? now_ms : now_ms + (TWI_REDIRECT_HOP_MS << (detour->hops - 1));
    detour->hops++;
}

void twi_detour_note(struct twi_detour *detour, enum twi_redirect_kind kind, int64_t now_ms, uint64_t random) {
    switch (kind) {
    case TWI_REDIRECT_NONE:
    case TWI_REDIRECT_NON_LOCAL: return;
    case TWI_REDIRECT_MOVED:
    case TWI_REDIRECT_ASK: hop(detour, now_ms, random); return;
    case TWI_REDIRECT_CROSSSLOT:
        detour->is_held = true;
        detour->again_ms = now_ms + TWI_REDIRECT_MISTAKE_MS;
        return;
    case TWI_REDIRECT_TRYAGAIN:
    case TWI_REDIRECT_UNSERVED:
    case TWI_REDIRECT_DOWN: twi_detour_hold(detour, now_ms, random); return;
    }
}

void twi_detour_end(struct twi_detour *detour) {
    *detour = (struct twi_detour){0};
}
