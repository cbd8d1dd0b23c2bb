"""How an inference server uses the tables: load once, bind once, look up per request."""

import time

from advisor.lookup import Policy

policy = Policy.load()
decode = policy.bind("decode")

answer = decode(4096)
print(f"decode at n=4096: {answer.variant}, {answer.threads} threads on CPUs {answer.cpus}, basis {answer.basis}")
print(f"because: {answer.why}")

repeats = 200_000
start = time.perf_counter_ns()
for _ in range(repeats):
    decode(4096)
print(f"one lookup: {(time.perf_counter_ns() - start) / repeats:.0f} ns, loop included")

# Around the calls that load and run the kernels, `with answer.applied():` pins the OpenMP threads: docs/lookup.md.
