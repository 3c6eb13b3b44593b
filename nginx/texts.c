/* texts.c -- texts with variables: the KEY, the LIMIT and n= of a rule.
 * A text of literals and variables is divided when the configuration is read, and put together for a request in one
 * step. nginx's evaluation needs two steps and a call for each part. It is used for texts with captures of an
 * expression, and for very long ones.
 * Always true: a text has the value that nginx would give it. */
#include "ngx_http_tallywheel.h"


#define NGX_HTTP_TALLYWHEEL_PARTS_MAX  8   /* a longer text is nginx's */


static ngx_uint_t
ngx_http_tallywheel_is_name(u_char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}


/* The variable at the beginning of the text: $name or ${name}. Returns its length with all signs, or 0. */
static size_t
ngx_http_tallywheel_find_name(u_char *p, u_char *end, ngx_str_t *name)
{
    u_char     *begin = p;
    ngx_uint_t  has_braces;

    p++;
    has_braces = (p < end && *p == '{');
    p += has_braces;

    name->data = p;

    while (p < end && ngx_http_tallywheel_is_name(*p)) {
        p++;
    }

    name->len = (size_t) (p - name->data);

    if (name->len == 0 || (name->data[0] >= '0' && name->data[0] <= '9')) {
        return 0;
    }

    if (has_braces && (p == end || *p++ != '}')) {
        return 0;
    }

    return (size_t) (p - begin);
}


static ngx_int_t
ngx_http_tallywheel_add_part(ngx_array_t *parts, u_char *begin, u_char *end, ngx_int_t variable)
{
    ngx_http_tallywheel_part_t  *part;

    part = ngx_array_push(parts);
    if (part == NULL) {
        return NGX_ERROR;
    }

    part->literal.data = begin;
    part->literal.len = (size_t) (end - begin);
    part->variable = variable;

    return NGX_OK;
}


/* Returns NGX_DECLINED if only nginx can evaluate the text. */
static ngx_int_t
ngx_http_tallywheel_divide(ngx_conf_t *cf, ngx_str_t *source, ngx_array_t *parts)
{
    u_char     *p, *begin, *end;
    size_t      len;
    ngx_int_t   variable;
    ngx_str_t   name;

    begin = source->data;
    end = source->data + source->len;

    for (p = begin; p < end; /* void */ ) {

        if (*p != '$') {
            p++;
            continue;
        }

        len = ngx_http_tallywheel_find_name(p, end, &name);
        if (len == 0) {
            return NGX_DECLINED;
        }

        variable = ngx_http_get_variable_index(cf, &name);
        if (variable == NGX_ERROR || ngx_http_tallywheel_add_part(parts, begin, p, variable) != NGX_OK) {
            return NGX_ERROR;
        }

        begin = p = p + len;
    }

    return (begin < end) ? ngx_http_tallywheel_add_part(parts, begin, end, -1) : NGX_OK;
}


ngx_int_t
ngx_http_tallywheel_compile_text(ngx_conf_t *cf, ngx_str_t *source, ngx_http_tallywheel_text_t *text)
{
    ngx_int_t                          rc;
    ngx_array_t                        parts;
    ngx_http_compile_complex_value_t   ccv;

    ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));
    ccv.cf = cf;
    ccv.value = source;
    ccv.complex_value = &text->value;

    text->count = 0;
    text->variable = -1;

    if (ngx_http_compile_complex_value(&ccv) != NGX_OK
        || ngx_array_init(&parts, cf->pool, 2, sizeof(ngx_http_tallywheel_part_t)) != NGX_OK)
    {
        return NGX_ERROR;
    }

    rc = ngx_http_tallywheel_divide(cf, source, &parts);

    if (rc == NGX_OK && parts.nelts <= NGX_HTTP_TALLYWHEEL_PARTS_MAX) {
        text->parts = parts.elts;
        text->count = parts.nelts;

        if (text->count == 1 && text->parts->literal.len == 0) {
            text->variable = text->parts->variable;
        }
    }

    return (rc == NGX_ERROR) ? NGX_ERROR : NGX_OK;
}


/* Puts the parts together. */
static ngx_int_t
ngx_http_tallywheel_join(ngx_http_request_t *r, ngx_http_tallywheel_text_t *text, ngx_str_t *value)
{
    u_char                      *p;
    ngx_str_t                    found[NGX_HTTP_TALLYWHEEL_PARTS_MAX];
    ngx_uint_t                   i;
    ngx_http_variable_value_t   *v;
    ngx_http_tallywheel_part_t  *part = text->parts;

    value->len = 0;

    for (i = 0; i < text->count; i++) {
        v = (part[i].variable < 0) ? NULL : ngx_http_tallywheel_find_variable(r, part[i].variable);

        found[i].data = v ? v->data : NULL;
        found[i].len = v ? v->len : 0;
        value->len += part[i].literal.len + found[i].len;
    }

    p = ngx_pnalloc(r->pool, value->len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    value->data = p;

    for (i = 0; i < text->count; i++) {
        p = ngx_cpymem(p, part[i].literal.data, part[i].literal.len);

        if (found[i].len) {
            p = ngx_cpymem(p, found[i].data, found[i].len);
        }
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_tallywheel_text(ngx_http_request_t *r, ngx_http_tallywheel_text_t *text, ngx_str_t *value)
{
    ngx_http_variable_value_t  *v;

    if (text->variable >= 0) {
        v = ngx_http_tallywheel_find_variable(r, text->variable);

        value->data = v ? v->data : NULL;
        value->len = v ? v->len : 0;
        return NGX_OK;
    }

    if (text->count == 0) {
        return ngx_http_complex_value(r, &text->value, value);
    }

    if (text->count == 1 && text->parts->variable < 0) {
        *value = text->parts->literal;
        return NGX_OK;
    }

    return ngx_http_tallywheel_join(r, text, value);
}
