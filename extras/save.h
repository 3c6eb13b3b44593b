/* save.h -- the inside of tw_save() and tw_load(): the file, and its format.
 *
 *   "twcounts" | format : 4 | 0 : 4 | record ... | checksum : 8        numbers are little-endian
 *   family   0xfffe : 2 | size of the name : 1 | name | fields : 8 each      (port/extras.h), numbered from 0 on
 *   window   0xfffd : 2 | number of its family : 4 | start, unix ms : 8      to be reported by who loads it
 *            0xfffc : 2 | the same                                           it has been reported as final
 *   counter  size of the key : 2 | count : 8 | key                           of the window before it
 *
 * A counter with a key of size 0 is the overflow counter. Counters of one key add up. Format 1 has no record 0xfffc: it
 * does not say which windows were reported. A format with a greater number may change all of this behind the number,
 * but for the checksum.
 * Always true: a file is written under one other name, PATH.new, and renamed when it is whole, so the path leads to a
 * whole file or to none. Who writes under that name has locked it. No record is used before the checksum of the whole
 * file was found right, and no byte beyond it is read. */
#ifndef TWI_EXTRAS_SAVE_H
#define TWI_EXTRAS_SAVE_H

#include "engine/port/extras.h"

#define TWI_SAVE_FORMAT 2u
#define TWI_SAVE_BLOCK 65536u /* bytes that are written, read and summed up at once */
#define TWI_SAVE_SUM_BYTES 8u
#define TWI_SAVE_PATH_MAX 4096u

/* The checksum of a file is that of its blocks, in order; the last block may be shorter. A change of one word of 8
 * bytes is always seen. */
#define TWI_SAVE_SUM_FIRST UINT64_C(0x74776c6c65656877)
uint64_t twi_save_sum(uint64_t sum, const unsigned char *bytes, size_t size);

/* ---- save_file.c: the file ---- */

/* A file that is being written. */
struct twi_save_out {
    const char *path;
    char temporary[TWI_SAVE_PATH_MAX + 8];
    int fd;        /* -1 behind the end */
    bool failed;   /* tw_error_text() has the reason */
    bool is_there; /* the whole file is at its path */
    size_t used;
    uint64_t sum;
    unsigned char block[TWI_SAVE_BLOCK];
};
tw_status twi_save_create(struct twi_save_out *out, const char *path);
/* Returns false if the file could not be written. */
bool twi_save_put(struct twi_save_out *out, const void *bytes, size_t size);
/* Puts the whole file at its path. Returns false if it could not, or if an earlier put has failed. */
bool twi_save_finish(struct twi_save_out *out);
/* Ends the writing. A file that is not at its path is removed. */
void twi_save_end(struct twi_save_out *out);
/* The new name is on the disk. */
tw_status twi_save_sync_folder(const char *path);

/* A file that is being read. */
struct twi_save_in {
    const char *path;
    int fd;
    uint32_t format; /* of the head that was read */
    uint64_t size;   /* without the checksum */
    uint64_t at;     /* how much of the file is in the block, or was */
    size_t begin, end;
    unsigned char block[TWI_SAVE_BLOCK];
};
/* If it returns TW_OK, the caller closes in->fd. */
tw_status twi_save_open(struct twi_save_in *in, const char *path);
tw_status twi_save_check_sum(struct twi_save_in *in);
void twi_save_rewind(struct twi_save_in *in);
/* The next `size` bytes, at most a block. NULL: there are not so many left, or they could not be read. */
const unsigned char *twi_save_take(struct twi_save_in *in, size_t size);
bool twi_save_is_at_end(const struct twi_save_in *in);
tw_status twi_save_refuse(const char *path, const char *why);

/* ---- save_format.c: its records ---- */

/* Write a record each. The visitor of twi_save_visit(); ctx is the twi_save_out. */
extern const struct twi_save_visitor twi_save_writer;
bool twi_save_put_head(struct twi_save_out *out);

/* Reads the records of a file whose sum is right, for `loading`: all are checked, and then, in a second round,
 * counted. */
tw_status twi_save_read_head(struct twi_save_in *in);
tw_status twi_save_check_all(struct twi_save_in *in, struct twi_loading *loading);
tw_status twi_save_count_all(struct twi_save_in *in, struct twi_loading *loading);

#endif
