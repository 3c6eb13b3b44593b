/* network.c -- a KEY that is the network of an address: net($remote_addr,24,64).
 * One client of IPv6 has 2^64 addresses at least, so a key for each address would not limit it.
 * Always true: a text that is no address, such as "unix:" of a client of a unix socket, has the key "no-address". So
 * such requests are limited together, and each is limited. An empty text is no key, as in every rule. */
#include "ngx_http_tallywheel.h"


#define NGX_HTTP_TALLYWHEEL_NETWORK_SIZE  64


/* The number behind the last comma before *end. *end becomes where that comma is. */
static ngx_uint_t
ngx_http_tallywheel_network_bits(u_char *begin, u_char **end, ngx_int_t most, unsigned *bits)
{
    u_char     *p;
    ngx_int_t   number;

    for (p = *end; p > begin && p[-1] != ','; p--) { /* void */ }

    if (p == begin) {
        return 0;
    }

    number = ngx_atoi(p, (size_t) (*end - p));
    *end = p - 1;
    *bits = (unsigned) number;

    return number >= 0 && number <= most;
}


/* The KEY of a rule, a text or net(TEXT,BITS,BITS). Returns NULL, or a sentence. */
const char *
ngx_http_tallywheel_compile_key(ngx_conf_t *cf, ngx_str_t *source, ngx_http_tallywheel_rule_t *rule)
{
    u_char                         *end;
    ngx_str_t                       text;
    ngx_http_tallywheel_network_t  *network;

    static const char  begin[] = "net(";
    static const char  refused[] = "it cannot be evaluated";

    rule->key_source = *source;

    if (source->len < sizeof(begin) || ngx_strncmp(source->data, begin, sizeof(begin) - 1) != 0) {
        return (ngx_http_tallywheel_compile_text(cf, source, &rule->key) == NGX_OK) ? NULL : refused;
    }

    network = ngx_pcalloc(cf->pool, sizeof(ngx_http_tallywheel_network_t));
    if (network == NULL) {
        return refused;
    }

    text.data = source->data + sizeof(begin) - 1;
    end = source->data + source->len - 1;

    if (*end != ')' || !ngx_http_tallywheel_network_bits(text.data, &end, 128, &network->bits6)
        || !ngx_http_tallywheel_network_bits(text.data, &end, 32, &network->bits4) || end == text.data)
    {
        return "a network has a text and the bits of IPv4 (0 to 32) and IPv6 (0 to 128), "
               "such as net($remote_addr,24,64)";
    }

    text.len = (size_t) (end - text.data);

    if (text.len == sizeof("$binary_remote_addr") - 1
        && ngx_strncmp(text.data, "$binary_remote_addr", text.len) == 0)
    {
        return "a network is of the text of an address, which is in $remote_addr";
    }

    rule->network = network;
    rule->key.variable = -1;

    return (ngx_http_tallywheel_compile_text(cf, &text, &network->text) == NGX_OK) ? NULL : refused;
}


ngx_int_t
ngx_http_tallywheel_network_key(ngx_http_request_t *r, ngx_http_tallywheel_network_t *network, tw_key *key)
{
    char       *buffer;
    tw_status   status;
    ngx_str_t   text;

    if (ngx_http_tallywheel_text(r, &network->text, &text) != NGX_OK) {
        return NGX_ERROR;
    }

    if (text.len == 0) {
        *key = tw_bytes(NULL, 0);
        return NGX_OK;
    }

    buffer = ngx_pnalloc(r->pool, NGX_HTTP_TALLYWHEEL_NETWORK_SIZE);
    if (buffer == NULL) {
        return NGX_ERROR;
    }

    status = tw_key_network((char *) text.data, text.len, network->bits4, network->bits6, buffer,
                            NGX_HTTP_TALLYWHEEL_NETWORK_SIZE, key);

    if (status != TW_OK) {
        *key = tw_str("no-address");
    }

    return NGX_OK;
}
