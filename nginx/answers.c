/* answers.c -- the first answer to a request, which decides about refund=.
 * error_page replaces an answer by another one, and nginx keeps no trace of the first status. So each URI of an
 * error_page begins with a variable here, which is empty and notes the status of that error_page.
 * Always true: a URI has the value that its error_page gives it. The first status that was noted stays. */
#include "ngx_http_tallywheel.h"


#define NGX_HTTP_TALLYWHEEL_ANSWER  "tallywheel_answer_"


/* The variable is NAME with the status behind it. */
static ngx_int_t
ngx_http_tallywheel_note_answer(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_int_t                   status;
    ngx_str_t                  *name = (ngx_str_t *) data;
    ngx_http_tallywheel_ctx_t  *ctx;

    ctx = ngx_http_tallywheel_get_ctx(r);

    if (r == r->main && ctx && ctx->decided && ctx->answer == 0) {
        status = ngx_atoi(name->data + sizeof(NGX_HTTP_TALLYWHEEL_ANSWER) - 1,
                          name->len - (sizeof(NGX_HTTP_TALLYWHEEL_ANSWER) - 1));
        ctx->answer = (status > 0) ? (ngx_uint_t) status : 0;
    }

    v->data = (u_char *) "";
    v->len = 0;
    v->valid = 1;
    v->no_cacheable = 1;
    v->not_found = 0;

    return NGX_OK;
}


ngx_int_t
ngx_http_tallywheel_add_answers(ngx_conf_t *cf)
{
    ngx_http_variable_t  *var;

    static ngx_str_t  name = ngx_string(NGX_HTTP_TALLYWHEEL_ANSWER);

    var = ngx_http_add_variable(cf, &name, NGX_HTTP_VAR_NOCACHEABLE|NGX_HTTP_VAR_PREFIX);
    if (var == NULL) {
        return NGX_ERROR;
    }

    var->get_handler = ngx_http_tallywheel_note_answer;

    return NGX_OK;
}


static ngx_int_t
ngx_http_tallywheel_watch_answer(ngx_conf_t *cf, ngx_http_err_page_t *page)
{
    u_char                            *p;
    ngx_str_t                          source;
    ngx_uint_t                         has_args;
    ngx_http_compile_complex_value_t   ccv;

    has_args = (page->value.lengths == NULL && page->args.len); /* nginx has cut them off */

    source.len = sizeof("${" NGX_HTTP_TALLYWHEEL_ANSWER "}") - 1 + NGX_INT_T_LEN + page->value.value.len + 1
                 + page->args.len;
    source.data = ngx_pnalloc(cf->pool, source.len + 1);
    if (source.data == NULL) {
        return NGX_ERROR;
    }

    p = ngx_sprintf(source.data, "${" NGX_HTTP_TALLYWHEEL_ANSWER "%i}%V", page->status, &page->value.value);

    if (has_args) {
        p = ngx_sprintf(p, "?%V", &page->args);
    }

    *p = '\0';
    source.len = (size_t) (p - source.data);

    ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));
    ccv.cf = cf;
    ccv.value = &source;
    ccv.complex_value = &page->value;

    return ngx_http_compile_complex_value(&ccv);
}


/* Once for each list of a location, which others may have inherited. */
ngx_int_t
ngx_http_tallywheel_watch_answers(ngx_conf_t *cf)
{
    ngx_uint_t                  i;
    ngx_http_err_page_t        *page;
    ngx_http_core_loc_conf_t   *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->error_pages == NULL) {
        return NGX_OK;
    }

    page = clcf->error_pages->elts;

    for (i = 0; i < clcf->error_pages->nelts; i++) {
        if (ngx_strncmp(page[i].value.value.data, "${" NGX_HTTP_TALLYWHEEL_ANSWER,
                        sizeof("${" NGX_HTTP_TALLYWHEEL_ANSWER) - 1) != 0
            && ngx_http_tallywheel_watch_answer(cf, &page[i]) != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}
