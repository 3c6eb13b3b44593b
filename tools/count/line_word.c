/* line_word.c -- fields separated by spaces, hosts, requests. See line_form.h. */
#include "tools/count/line_form.h"

static bool word_is_digit(char c) {
    return c >= '0' && c <= '9';
}

const char *line_quote_end(const char *at, const char *end) {
    for (const char *begin = at;; at++) {
        const char *quote = memchr(at, '"', (size_t)(end - at)), *before = quote;
        if (quote == NULL) return NULL;
        while (before > begin && before[-1] == '\\') before--;
        if ((quote - before) % 2 == 0) return quote;
        at = quote;
    }
}

const char *line_word_read(const char *at, const char *end, struct line_word *word) {
    const char *close;
    word->mark = *at == '"' || *at == '[' ? *at : '\0';
    if (word->mark == '\0') {
        close = memchr(at, ' ', (size_t)(end - at));
        if (close == NULL) close = end;
        word->text = tw_bytes(at, (size_t)(close - at));
        word->next = close;
        return NULL;
    }
    close = *at == '"' ? line_quote_end(at + 1, end) : memchr(at + 1, ']', (size_t)(end - at - 1));
    if (close == NULL) return *at == '"' ? "a quote is not closed" : "a bracket is not closed";
    if (close + 1 < end && close[1] != ' ') return "a field continues after its closing mark";
    word->text = tw_bytes(at + 1, (size_t)(close - at - 1));
    word->next = close + 1;
    return NULL;
}

/* ---- hosts ---- */

static bool is_hex(char c) {
    return word_is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

bool line_is_host(tw_key text) {
    const char *at = text.data, *end = at + text.size;
    bool says_something = false;
    for (; at < end; at++) {
        bool is_letter = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || word_is_digit(*at);
        says_something = says_something || is_letter || *at == ':'; /* "::" is an address */
        if (!is_letter && (*at == '\0' || strchr(".:-_%[]", *at) == NULL)) return false;
    }
    return says_something;
}

static bool is_port(const char *at, const char *end) {
    if (at == end) return false;
    for (; at < end; at++)
        if (!word_is_digit(*at)) return false;
    return true;
}

/* Reads four numbers with points between them. Returns where they end, or NULL. */
static const char *four_pass(const char *at, const char *end) {
    for (int part = 0; part < 4; part++) {
        const char *begin = at;
        if (part > 0 && (at == end || *at++ != '.')) return NULL;
        begin = at;
        while (at < end && word_is_digit(*at)) at++;
        if (at == begin || at - begin > 3) return NULL;
    }
    return at;
}

bool line_is_address(tw_key text) {
    const char *at = text.data, *end = at + text.size;
    const char *four = four_pass(at, end);
    unsigned colons = 0;
    if (four != NULL) return four == end || (*four == ':' && is_port(four + 1, end));
    for (; at < end; at++) {
        if (*at == ':')
            colons++;
        else if (*at == '%')
            break; /* the name of an interface */
        else if (!is_hex(*at) && *at != '.' && *at != '[' && *at != ']')
            return false;
    }
    return colons >= 2;
}

tw_key line_without_port(tw_key text) {
    const char *begin = text.data, *end = begin + text.size;
    const char *colon = memrchr(begin, ':', text.size);
    if (colon == NULL || !is_port(colon + 1, end)) return text;
    return tw_bytes(begin, (size_t)(colon - begin));
}

tw_key line_bare_address(tw_key text) {
    tw_key address = line_without_port(text);
    const char *begin = address.data;
    if (address.size < 2 || begin[0] != '[' || begin[address.size - 1] != ']') return address;
    return tw_bytes(begin + 1, address.size - 2);
}

bool line_is_number(tw_key text) {
    const char *at = text.data, *end = at + text.size;
    if (at < end && *at == '-') at++; /* HAProxy: -1 */
    return text.size > 0 && (at == end || is_port(at, end));
}

bool line_is_status(tw_key text) {
    const char *at = text.data;
    if (text.size != 3) return line_is_number(text) && text.size < 3 && (*at == '-' || *at == '0');
    return is_port(at, at + 3);
}

/* ---- requests ---- */

/* The place where " HTTP/1.1" begins, or the end if the request has no such part. */
static const char *protocol_find(const char *begin, const char *end) {
    const char *space = memrchr(begin, ' ', (size_t)(end - begin));
    return space != NULL && end - space > 5 && memcmp(space + 1, "HTTP/", 5) == 0 ? space : end;
}

tw_key line_request_part(tw_key request, uint16_t field) {
    if (field == LINE_FIELD_REQUEST) return request;
    const char *begin = request.data, *end = begin + request.size;
    const char *space = memchr(begin, ' ', request.size), *protocol = protocol_find(begin, end);
    const char *url = space == NULL ? begin : space + 1, *mark;
    if (field == LINE_FIELD_METHOD) return space == NULL ? tw_str("-") : tw_bytes(begin, (size_t)(space - begin));
    if (field == LINE_FIELD_PROTOCOL)
        return protocol == end ? tw_str("-") : tw_bytes(protocol + 1, (size_t)(end - protocol - 1));
    if (url > protocol) protocol = end; /* "GET HTTP/1.1": no URL */
    size_t size = (size_t)(protocol - url);
    if (field == LINE_FIELD_PATH && (mark = memchr(url, '?', size)) != NULL) size = (size_t)(mark - url);
    return tw_bytes(url, size);
}

const char *line_named_check(uint16_t field, const struct line_word *word) {
    bool is_none = word->text.size == 1 && *(const char *)word->text.data == '-';
    switch (field) {
    case LINE_FIELD_CLIENT: return line_is_host(word->text) ? NULL : "what should be the client is no host";
    case LINE_FIELD_STATUS: return line_is_status(word->text) ? NULL : "what should be the status is none";
    case LINE_FIELD_BYTES: return line_is_number(word->text) ? NULL : "what should be the bytes is no number";
    case LINE_FIELD_METHOD:
    case LINE_FIELD_URL:
    case LINE_FIELD_PATH:
    case LINE_FIELD_PROTOCOL:
    case LINE_FIELD_REQUEST: return word->mark == '"' || is_none ? NULL : "what should be the request is not in quotes";
    case LINE_FIELD_REFERER: return word->mark == '"' || is_none ? NULL : "what should be the referer is not in quotes";
    case LINE_FIELD_AGENT: return word->mark == '"' || is_none ? NULL : "what should be the agent is not in quotes";
    default: return NULL;
    }
}
