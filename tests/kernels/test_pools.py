"""Case N-05: the thread pools of a worker are listed with their sizes, and what is wrong with them is said."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys

import calling
import kernel_fixtures as fixtures
import numpy as np
import pytest
from threadpoolctl import threadpool_info

from advisor.kernels import pools
from advisor.kernels.compilers import compilers
from advisor.kernels.executor import Ask
from advisor.kernels.pool import WorkerPool
from advisor.kernels.variant import read_variant
from advisor.records import Measurement, pairs

PLAIN = fixtures.good("plain")


@pytest.fixture(scope="module")
def measured():
    """Trials that differ in their wait policy only, with as many threads as there are CPUs (two at most)."""
    count = min(2, len(fixtures.here().allowed_cpus))
    with WorkerPool(fixtures.here(), fixtures.scale(), [PLAIN]) as pool:
        ask = Ask(1, 60.0, 0.0005)
        return count, {
            policy: pool.measure(fixtures.problem(100), fixtures.choice(PLAIN, count, wait_policy=policy), ask)
            for policy in ("default", "passive")
        }


def pools_of(trial):
    return tuple(pools.Pool(*one) for one in dict(trial.conditions)["pools"])


def test_n05_a_trial_lists_every_pool_with_its_size_and_file_and_stays_within_the_cpus(measured):
    count, found = measured
    for trial in found.values():
        runtime, *others = pools_of(trial)
        assert (runtime.name, runtime.threads) == (trial.choice.process.runtime, count)
        assert runtime.file.startswith(runtime.name)
        assert "/" not in runtime.file
        assert [pool.threads for pool in others] == [1] * len(others)  # numpy's BLAS
        assert pools.busy(pools_of(trial)) <= len(fixtures.here().allowed_cpus)
        assert "pool_warnings" not in dict(trial.conditions)


GOMP = pools.Pool("libgomp", 4, "libgomp.so.1.0.0")
NUMPY = pools.Pool("openblas", 4, "libscipy_openblas64_-1a.so")


@pytest.mark.parametrize(
    "loaded",
    [
        (GOMP,),
        (GOMP, NUMPY._replace(threads=1)),
        (GOMP, NUMPY._replace(own=False)),  # it runs on the team of libgomp
        (GOMP._replace(threads=8), NUMPY._replace(threads=1)),  # an oversubscribed team, alone
    ],
)
def test_n05_one_pool_that_may_be_busy_is_no_warning(loaded):
    assert pools.warnings(loaded, 4) == ()


def test_n05_two_pools_are_named_with_their_files_and_threads():
    (said,) = pools.warnings((GOMP, NUMPY), 16)
    assert "2 thread pools" in said
    assert "libgomp with 4 (libgomp.so.1.0.0), openblas with 4 (libscipy_openblas64_-1a.so)" in said
    assert "threads on" not in said
    (crowd,) = pools.warnings((GOMP, NUMPY), 4)
    assert "7 threads on 4 CPUs" in crowd


def test_n05_two_openmp_runtimes_are_a_warning_however_small_their_teams():
    other = pools.Pool("libomp", 1, "libomp.so.5")
    (said,) = pools.warnings((GOMP._replace(threads=1), other), 16)
    assert "libomp with 1 (libomp.so.5)" in said
    assert len(pools.warnings((GOMP, GOMP._replace(file="libgomp-24e2ab19.so.1.0.0")), 16)) == 1


SECOND = """/* variant {
  "idea": "brings a second pool along in its first call", "language": "c", "symbol": "scale_second",
  "dtypes": ["float32", "float64"], "reads": "n * width", "writes": "n * width", "mapping": "equal rows a thread",
  "rank": 50
} */
#include <dlfcn.h>

#include "advisor.h"

int64_t scale_second_workspace(const int64_t *dims, int threads) { (void)dims, (void)threads; return 0; }

int scale_second(void *const *buffers, const int64_t *dims, void *workspace, int threads)
{
    const ADV_REAL *x = buffers[0];
    ADV_REAL *y = buffers[1];
    void *pool = dlopen("FILE", RTLD_NOW | RTLD_LOCAL);
    void (*set)(int) = pool ? (void (*)(int))dlsym(pool, "SET") : 0;
    (void)workspace;
    if (!set) return 1;
    set(2);
#pragma omp parallel for num_threads(threads)
    for (int64_t i = 0; i < dims[0] * dims[1]; i++) y[i] = 3 * x[i] + 1;
    return 0;
}
"""


def numpys_blas():
    """File of the BLAS with threads of its own that numpy's wheel has, and its function that sets their number."""
    np.ones(1) @ np.ones(1)
    for one in threadpool_info():
        library = ctypes.CDLL(one["filepath"])
        for name in ("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads", "openblas_set_num_threads"):
            if one.get("threading_layer") == "pthreads" and hasattr(library, name):
                return one["filepath"], name
    pytest.skip("numpy has no OpenBLAS with threads of its own here")


def copied_runtime(folder):
    """A copy of libgomp under another name, as wheels bring one along, and its function that sets the team size."""
    listing = threadpool_info() if ctypes.CDLL("libgomp.so.1") else ()
    path = next(one["filepath"] for one in listing if one["prefix"] == "libgomp")
    copy = shutil.copy(path, folder / "libgomp-24e2ab19.so.1.0.0")
    return str(copy), "omp_set_num_threads"


def second(folder, file, setter):
    path = folder / "second.c"
    path.write_text(SECOND.replace("FILE", file).replace("SET", setter))
    return read_variant(str(path), "scale")


@pytest.mark.parametrize("kind", ["openblas", "libgomp"])
def test_n05_a_second_pool_in_a_worker_is_found_and_both_are_named(tmp_path, kind):
    """In what runs later in that worker too; what ran before it had one pool."""
    file, setter = numpys_blas() if kind == "openblas" else copied_runtime(tmp_path)
    one = second(tmp_path, file, setter)
    if compilers()[0].runtime != "libgomp":
        pytest.skip("needs gcc, whose libgomp the copy is of")
    with WorkerPool(fixtures.here(), fixtures.scale(), [PLAIN, one]) as pool:
        ask, problem = Ask(1, 60.0, 0.0005), fixtures.problem(100)
        before, during, after = (pool.measure(problem, fixtures.choice(v), ask) for v in (PLAIN, one, PLAIN))
    assert [trial.status for trial in (before, during, after)] == ["ok"] * 3, during.reason
    assert "pool_warnings" not in dict(before.conditions)
    (said,) = dict(during.conditions)["pool_warnings"]
    assert os.path.basename(file) in said
    assert os.path.dirname(file) not in said
    assert {kind, "libgomp"} <= {found.name for found in pools.rivals(pools_of(during))}
    assert dict(after.conditions)["pool_warnings"] == (said,)
    assert pools.notes([before, during, after]) == [f"second: {said}"]


def test_n05_a_library_that_brings_two_runtimes_is_refused_and_both_files_are_named(tmp_path):
    file, _ = copied_runtime(tmp_path)
    called = calling.variant(tmp_path, f"import ctypes\nctypes.CDLL({file!r})\n{calling.RIGHT}")
    program = f"""
import ctypes
from advisor.kernels.library import load
from advisor.kernels.messages import Binary
ctypes.CDLL("libgomp.so.1")
load(Binary("", "prepare", "key", (), (), {called.path!r}, {called.source_hash!r}))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "libgomp (libgomp-24e2ab19.so.1.0.0), libgomp (libgomp.so.1" in done.stderr


@pytest.mark.parametrize(
    ("prefix", "name"),
    [
        ("libgomp", "libgomp"),
        ("libgomp-24e2ab19", "libgomp"),
        ("libiomp5", "libiomp"),
        ("libomp", "libomp"),
        ("x", "x"),
    ],
)
def test_vendored_copies_of_a_runtime_are_that_runtime(prefix, name):
    assert pools.runtime_name(prefix) == name


def test_n05_the_user_is_told_once_by_the_first_variant_that_met_it(measured):
    trial = measured[1]["default"]
    warned = trial._replace(conditions=pairs({**dict(trial.conditions), "pool_warnings": ("two teams",)}))
    assert pools.notes([trial, warned, warned]) == ["plain: two teams"]
    assert pools.notes([trial, Measurement(trial.problem, trial.choice, "crashed")]) == []
