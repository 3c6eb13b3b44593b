/* plugin.c -- a module of a server, with the static library inside: what unloaded.c loads and unloads. */
#include "tallywheel.h"

/* Names, so that the linker keeps what unloaded.c looks up. */
extern const void *const plugin_calls[];
const void *const plugin_calls[] = {(const void *)tw_open, (const void *)tw_close};
