/* plugin.c -- a module of a server, with the static library inside: what unloaded.c loads and unloads. */
#include "tallywheel.h"

/* Names, so that the linker keeps what unloaded.c looks up. */
extern void (*const plugin_calls[])(void);
void (*const plugin_calls[])(void) = {(void (*)(void))tw_open, (void (*)(void))tw_close};
