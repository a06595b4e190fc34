/* See reading.h. */

#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64

#include "reading.h"

#include <errno.h>
#ifndef _WIN32
#include <unistd.h>
#endif

enum { MOST = 1 << 30 }; /* bytes that a system is asked for at a time */

int
read_from(int file, uint8_t *to, size_t size, int64_t position)
{
#ifdef _WIN32 /* has no call that names the position and leaves the file's own alone; nobody asks for it there */
    (void)file, (void)to, (void)size, (void)position;
    return 0;
#else
    while (size > 0) {
        ssize_t count = pread(file, to, size < MOST ? size : MOST, (off_t)position);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return 0;
        to += count;
        size -= (size_t)count;
        position += count;
    }
    return 1;
#endif
}
