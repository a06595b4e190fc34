/* Implements reading.h. */

#define _POSIX_C_SOURCE 200809L
#define _DARWIN_C_SOURCE
#define _FILE_OFFSET_BITS 64

#include "reading.h"

#include <errno.h>
#include <string.h>
#ifndef _WIN32
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

enum { MOST = 1 << 30 }; /* bytes that one call requests */

int
read_from(int file, uint8_t *to, size_t size, int64_t position)
{
#ifdef _WIN32 /* has no call that reads at a position and keeps the file's own; no caller needs it there */
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

#ifndef _WIN32
#ifdef __APPLE__
#define MODIFIED st_mtimespec
#else
#define MODIFIED st_mtim
#endif

/* Tells whether a path stays below its directory: no part of it is empty, "." or "..". `name_problem` in
   packer/_storage/safe_open.py requires the same. */
static int
is_plain(const char *path)
{
    for (;;) {
        size_t size = strcspn(path, "/");
        if (size == 0 || (path[0] == '.' && (size == 1 || (size == 2 && path[1] == '.'))))
            return 0;
        if (path[size] == 0)
            return 1;
        path += size + 1;
    }
}

/* Tells whether two times are equal, except that a file system or a protocol may have stored one with less precision; as
   `same_stamp` in packer/_storage/stamps.py. */
static int
is_same_time(int64_t one, int64_t other)
{
    static const int64_t grains[] = {100, 1000, 1000000, 1000000000};
    if (one == other)
        return 1;
    for (int i = 0; i < 4 && one >= 0 && other >= 0; i++)
        if (one / grains[i] == other / grains[i] && (one % grains[i] == 0 || other % grains[i] == 0))
            return 1;
    return 0;
}

#endif

int
is_listed(int file, const Listed *listed, int64_t *modified)
{
#ifdef _WIN32
    (void)file, (void)listed, (void)modified;
    return 0;
#else
    struct stat status;
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode) || (int64_t)status.st_size != listed->size)
        return 0;
    int64_t seconds = (int64_t)status.MODIFIED.tv_sec;
    if (seconds > INT64_MAX / 1000000000 - 1 || seconds < INT64_MIN / 1000000000 + 1)
        return 0;
    *modified = seconds * 1000000000 + (int64_t)status.MODIFIED.tv_nsec;
    return is_same_time(*modified, listed->modified);
#endif
}

int
open_listed(const Listed *listed)
{
#ifdef _WIN32
    (void)listed;
    return -1;
#else
    const char *path = (const char *)(uintptr_t)listed->path;
    if (!is_plain(path))
        return -1;
    int file = openat((int)listed->directory, path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    int64_t modified;
    if (file >= 0 && !is_listed(file, listed, &modified)) {
        close(file);
        return -1;
    }
    return file;
#endif
}

void
close_file(int file)
{
#ifdef _WIN32
    (void)file;
#else
    close(file);
#endif
}
