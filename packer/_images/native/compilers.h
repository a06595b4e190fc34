/* What compilers can be told beside C. */

#ifndef PACKER_COMPILERS_H
#define PACKER_COMPILERS_H

#if defined(__GNUC__) || defined(__clang__)
#define INLINE static inline __attribute__((always_inline))
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)
#else
#define INLINE static inline
#define UNLIKELY(condition) (condition)
#endif

#endif
