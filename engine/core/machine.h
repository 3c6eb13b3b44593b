/* machine.h -- limits of the machine and of the process: the memory of its cgroup, its address space, huge pages of
 * shared memory, the machine's clock source.
 * Always true: what is missing or odd is no limit. Nothing here waits, fails, or reads more than 4 KiB of a file. */
#ifndef TWI_CORE_MACHINE_H
#define TWI_CORE_MACHINE_H

#include "tallywheel.h"

#define TWI_MACHINE_NAME_MAX 128u

/* What was found. A limit that there is not is UINT64_MAX, and a name that says nothing is empty. */
struct twi_machine {
    uint64_t cgroup_bytes;                   /* the least limit of the process's cgroup and of those above it */
    uint64_t address_bytes;                  /* RLIMIT_AS */
    bool has_no_huge_pages;                  /* shared memory gets none, also where it is asked for */
    char cgroup[TWI_MACHINE_NAME_MAX];       /* the file that has cgroup_bytes; its end, if it is long */
    char clock_source[TWI_MACHINE_NAME_MAX]; /* one that is slow to read */
};

/* Reads all of it. `root` is put before /proc and /sys: "", or a test's own tree. It takes one system call for the
 * address space, four for each file that exists and one for each that does not. It asks for up to four files, and one
 * for each level of the cgroup. */
void twi_machine_read(struct twi_machine *machine, const char *root);

/* Logs what concerns this engine, each line once in a process. Without log_write it reads nothing. Called by tw_open(),
 * before other threads know the engine. */
void twi_machine_report(tw_engine *engine, const char *root);

#endif
