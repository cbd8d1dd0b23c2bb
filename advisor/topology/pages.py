"""How the kernel hands out and moves memory: huge pages, automatic NUMA balancing. Read from files, never changed."""

from __future__ import annotations

import os
import re

from advisor.records import Pairs, pairs
from advisor.topology.files import names, number, text

TRANSPARENT = "sys/kernel/mm/transparent_hugepage/enabled"
POOLS = "sys/kernel/mm/hugepages"
BALANCING = "proc/sys/kernel/numa_balancing"


def read(root: str = "/") -> Pairs:
    """Pairs `transparent_huge_pages`, `huge_page_pools`, `numa_balancing`, each left out where no file tells.

    transparent_huge_pages: always, madvise or never; huge_page_pools: one object a page size that has pages set aside,
    with `page_bytes`, `total` and `free`; numa_balancing: 0 off, 1 on, 2 memory tiering.
    Source: Linux Documentation/admin-guide/mm/transhuge.rst, hugetlbpage.rst; sysctl/kernel.rst.
    """
    folder = os.path.join(root, POOLS)
    pools = tuple(pool for name in names(folder) if (pool := _pool(folder, name)))
    found = {
        "transparent_huge_pages": _chosen(text(os.path.join(root, TRANSPARENT)) or ""),
        "huge_page_pools": pools if names(folder) else None,
        "numa_balancing": number(os.path.join(root, BALANCING)),
    }
    return pairs({name: value for name, value in found.items() if value is not None})


def _chosen(line: str) -> str | None:
    """The word in brackets: `always [madvise] never`."""
    found = re.search(r"\[(\w+)\]", line)
    return found[1] if found else None


def _pool(folder: str, name: str) -> dict[str, int | None]:
    size = re.fullmatch(r"hugepages-(\d+)kB", name)
    total = number(f"{folder}/{name}/nr_hugepages") if size else None
    if not size or not total:
        return {}
    free = number(f"{folder}/{name}/free_hugepages")
    return {"page_bytes": int(size[1]) * 1024, "total": total, "free": free}


def warnings(found: Pairs, nodes: int) -> tuple[str, ...]:
    """A sentence where the kernel moves pages behind the threads' backs.

    Args:
        found: what `read` gave.
        nodes: NUMA nodes with memory.
    """
    if nodes < 2 or not dict(found).get("numa_balancing"):
        return ()
    return ("automatic NUMA balancing is on: it moves pages while kernels are timed; docs/traps/first-touch.md",)
