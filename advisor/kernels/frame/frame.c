/* The frame: compiled into the library of every variant, so that it shares the variant's OpenMP runtime and team. */
#define _GNU_SOURCE
#include "advisor.h"

#include <omp.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The kernel's own limit is 8192 CPUs; glibc's cpu_set_t stops at 1024. */
#define MASK_CPUS 8192
#define WORD_BITS ((int)(8 * sizeof(unsigned long)))

static int bind_self(const int *cpus, int count)
{
    unsigned long mask[MASK_CPUS / (8 * sizeof(unsigned long))] = {0};
    for (int i = 0; i < count; i++) {
        if (cpus[i] < 0 || cpus[i] >= MASK_CPUS) return 1;
        mask[cpus[i] / WORD_BITS] |= 1UL << (cpus[i] % WORD_BITS);
    }
    return syscall(SYS_sched_setaffinity, 0, sizeof mask, mask) < 0;
}

int advisor_pin(const int *cpus, int threads, const int *mask, int count)
{
    int failed = 0;
#pragma omp parallel num_threads(threads) reduction(+ : failed)
    failed += cpus ? bind_self(&cpus[omp_get_thread_num()], 1) : bind_self(mask, count);
    return failed;
}

int advisor_team(int threads, int64_t *tids, int64_t *cpus)
{
    int team = 0;
#pragma omp parallel num_threads(threads)
    {
        int i = omp_get_thread_num();
        tids[i] = syscall(SYS_gettid);
        cpus[i] = sched_getcpu();
#pragma omp atomic
        team++;
    }
    return team;
}

void advisor_touch(void *const *buffers, const int64_t *bytes, int count, int threads)
{
#pragma omp parallel num_threads(threads)
    {
        int64_t i = omp_get_thread_num(), team = omp_get_num_threads();
        for (int b = 0; b < count; b++) {
            int64_t first = bytes[b] / team * i, last = i == team - 1 ? bytes[b] : bytes[b] / team * (i + 1);
            memset((char *)buffers[b] + first, 0, (size_t)(last - first));
        }
    }
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t advisor_time(const advisor_trial *trial, int *error)
{
    int64_t set = trial->first % trial->set_count, start = now_ns();
    for (int64_t call = 0; call < trial->calls; call++) {
        int code = trial->entry(trial->sets[set], trial->dims, trial->workspace, (int)trial->threads);
        if (code) {
            *error = code;
            return -1;
        }
        if (++set == trial->set_count) set = 0;
    }
    return now_ns() - start;
}
