"""advisor: describes a machine as an array, runs the real kernels on it, and says what to run them with.

Public names are imported when first used; importing the package has no effect and loads nothing.
"""

from __future__ import annotations

__version__ = "0.1.0"

_WHERE = {
    "AdvisorError": "advisor.errors",
    "CpuArray": "advisor.topology.array",
    "Machine": "advisor.records",
    "Policy": "advisor.lookup",
    "probe": "advisor.topology.probe",
}

__all__ = ["AdvisorError", "CpuArray", "Machine", "Policy", "__version__", "probe"]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module 'advisor' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_WHERE[name]), name)
