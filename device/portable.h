/* The language of the device's kernels: a subset of C that a C compiler, nvcc and NVRTC compile.

   A kernel is a list of phases. On the device, the threads of a block run a phase in parallel, and wait for each other at its
   end. In plain C, in the twin, they run it one after the other, in either order, so that tests find a phase that depends on
   the order of its threads. A phase is a function of the block's shared memory, of the kernel's arguments, and of the number
   of a thread.

   Structures contain no pointers, sums wrap around in unsigned integers, and loops are bounded by their input. */

#ifndef DEVICE_PORTABLE_H
#define DEVICE_PORTABLE_H

#ifdef __CUDACC__

#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
#else
#include <stdint.h>
#endif

#define ON_DEVICE 1
#define FUNCTION static __device__ __forceinline__
#define TABLE static __device__ const
#define RESTRICT __restrict__
#define UNROLLED _Pragma("unroll")
#define ALIGNED(bytes) alignas(bytes)
/* Keeps a number in a register. Otherwise the compiler computes it again at each use, which takes longer. */
#define HELD(number) asm volatile("" : "+r"(number))

/* A kernel whose blocks have at most `most` threads; at least `blocks` of these blocks fit on a multiprocessor. */
#define KERNEL(name, most, blocks, ...) extern "C" __global__ void __launch_bounds__(most, blocks) name(__VA_ARGS__)
#define SHARED(type, name) __shared__ type name
/* Precedes the code that each block of a kernel runs, in braces. */
#define GRID const uint32_t block_x = blockIdx.x, block_y = blockIdx.y, threads = blockDim.x; (void)block_x, (void)block_y;
#define PHASE(call) do { const uint32_t thread = threadIdx.x; (void)thread; call; __syncthreads(); } while (0)
/* The last phase of a kernel: no barrier follows. */
#define LAST_PHASE(call) do { const uint32_t thread = threadIdx.x; call; } while (0)

FUNCTION uint32_t
shifted(uint32_t high, uint32_t low, uint32_t by) /* the upper 32 of 64 bits, after a shift to the left by 0 to 31 */
{
    return __funnelshift_l(low, high, by);
}

FUNCTION uint32_t
add_shared(uint32_t *to, uint32_t value) /* atomic for all threads of a block; returns the previous value */
{
    return atomicAdd(to, value);
}

FUNCTION void
largest_shared(uint32_t *to, uint32_t value)
{
    atomicMax(to, value);
}

#else

#include <stdint.h>
#include <string.h>

#define ON_DEVICE 0
#define FUNCTION static inline
#define TABLE static const
#define RESTRICT restrict
#define UNROLLED
#define ALIGNED(bytes) _Alignas(bytes)
#define HELD(number) ((void)(number))

/* It also takes the numbers of blocks and threads, and whether the threads run each phase from the last to the first. */
#define KERNEL(name, most, blocks, ...) \
    void name(uint32_t blocks_x, uint32_t blocks_y, uint32_t threads, uint32_t backwards, __VA_ARGS__); \
    void name(uint32_t blocks_x, uint32_t blocks_y, uint32_t threads, uint32_t backwards, __VA_ARGS__)
#define SHARED(type, name) type name
#define GRID \
    for (uint32_t block_y = 0; block_y < blocks_y; block_y++) \
        for (uint32_t block_x = 0; block_x < blocks_x; block_x++)
#define PHASE(call) \
    for (uint32_t turn = 0; turn < threads; turn++) { \
        const uint32_t thread = backwards ? threads - 1 - turn : turn; \
        (void)thread; \
        call; \
    }
#define LAST_PHASE(call) PHASE(call)

FUNCTION uint32_t
shifted(uint32_t high, uint32_t low, uint32_t by)
{
    return by ? high << by | low >> (32 - by) : high;
}

FUNCTION uint32_t
add_shared(uint32_t *to, uint32_t value)
{
    const uint32_t before = *to;
    *to += value;
    return before;
}

FUNCTION void
largest_shared(uint32_t *to, uint32_t value)
{
    *to = *to < value ? value : *to;
}

#endif

typedef struct {
    uint32_t at[4];
} Words; /* or eight 16-bit numbers */

/* Loads four words from an address that is a multiple of four words. */
FUNCTION Words
load_words(const uint32_t *RESTRICT from)
{
    Words words;
#if ON_DEVICE
    const uint4 four = *(const uint4 *)from;
    words.at[0] = four.x;
    words.at[1] = four.y;
    words.at[2] = four.z;
    words.at[3] = four.w;
#else
    memcpy(words.at, from, sizeof words.at);
#endif
    return words;
}

FUNCTION void
store_words(uint32_t *to, Words words) /* to a multiple of four words */
{
#if ON_DEVICE
    *(uint4 *)to = make_uint4(words.at[0], words.at[1], words.at[2], words.at[3]);
#else
    memcpy(to, words.at, sizeof words.at);
#endif
}

FUNCTION void
store_two(uint32_t *to, uint32_t first, uint32_t second) /* to a multiple of two words */
{
#if ON_DEVICE
    *(uint2 *)to = make_uint2(first, second);
#else
    to[0] = first;
    to[1] = second;
#endif
}

FUNCTION int32_t
smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

FUNCTION int32_t
larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

FUNCTION int32_t
bounded(int32_t value, int32_t least, int32_t most)
{
    return smaller(larger(value, least), most);
}

/* Signed products, sums and differences that wrap around. */
FUNCTION int32_t
times(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a * (uint32_t)b);
}

FUNCTION int32_t
plus(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a + (uint32_t)b);
}

FUNCTION int32_t
minus(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a - (uint32_t)b);
}

#endif
