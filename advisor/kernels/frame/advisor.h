/* What every variant and the frame agree on. A variant may include this file; it needs nothing from it but ADV_REAL
   and ADV_DTYPE.

   The entry:      int     SYMBOL(void *const *buffers, const int64_t *dims, void *workspace, int threads);
   Its scratch:    int64_t SYMBOL_workspace(const int64_t *dims, int threads);
   Details: docs/add-a-variant.md. */
#ifndef ADVISOR_H
#define ADVISOR_H

#include <stdint.h>

#ifndef ADV_REAL
#define ADV_REAL float /* what is computed in, and the type of all buffers that the kernel does not store otherwise */
#endif

/* The problem's dtype. bfloat16 and float16 are storage only: the kernel's spec.py says which buffers are kept so, the
   others are ADV_REAL, then float. */
#define ADV_FLOAT64 1
#define ADV_FLOAT32 2
#define ADV_BFLOAT16 3
#define ADV_FLOAT16 4
#ifndef ADV_DTYPE
#define ADV_DTYPE ADV_FLOAT32
#endif

typedef int (*advisor_entry)(void *const *buffers, const int64_t *dims, void *workspace, int threads);

/* Pin thread i of a team of `threads` to cpus[i]. cpus NULL: give every thread the `count` CPUs of `mask` instead.
   Returns the number of threads that could not be bound. Call it again after every change of team size: shrinking a
   team ends threads, and new ones inherit the one-CPU mask of the first. */
int advisor_pin(const int *cpus, int threads, const int *mask, int count);

/* Who runs in a team of `threads`: tids[i] and cpus[i] of thread i. Returns how many threads there really were. */
int advisor_team(int threads, int64_t *tids, int64_t *cpus);

/* First touch: thread i zeroes the i-th of `threads` equal parts of each buffer, so that its pages lie near it. */
void advisor_touch(void *const *buffers, const int64_t *bytes, int count, int threads);

/* What one timed sample needs. sets[s] is the entry's `buffers`; call c uses set (first + c) modulo
   set_count. */
typedef struct {
    advisor_entry entry;
    void *const *const *sets;
    int64_t set_count;
    int64_t first;
    const int64_t *dims;
    void *workspace;
    int64_t threads;
    int64_t calls;
} advisor_trial;

/* Run the calls and return the nanoseconds they took by CLOCK_MONOTONIC; -1 when a call failed, its code in *error. */
int64_t advisor_time(const advisor_trial *trial, int *error);

#endif
