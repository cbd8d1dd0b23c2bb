"""A signature inside machine.json: put in after it was measured, kept when the machine is probed again."""

from __future__ import annotations

from typing import Any

from advisor import codec
from advisor.errors import AdvisorError
from advisor.records import Machine, pairs
from advisor.signature.records import Signature
from advisor.topology.probe import read_machine

FIELD = "signature"


def with_signature(machine: Machine, found: Signature) -> Machine:
    """The machine with a signature, which stands in its file as the field `signature`."""
    return machine._replace(extra=pairs({**dict(machine.extra), FIELD: codec.to_json(found)}))


def signature_of(machine: Machine) -> Signature | None:
    """The signature that a machine.json carries, None without one.

    Raises:
        BadInput: it is not one.
    """
    data: Any = dict(machine.extra).get(FIELD)
    if data is None:
        return None
    found: Signature = codec.from_json(Signature, data, FIELD)
    return found


def with_earlier(machine: Machine, path: str) -> Machine:
    """The machine with the signature of an earlier description of the very same machine and limits, where it has none.

    Args:
        machine: as probed now.
        path: of the earlier machine.json, which need not exist.
    """
    if FIELD in dict(machine.extra):
        return machine
    try:
        earlier = read_machine(path)
        found = signature_of(earlier)
    except AdvisorError:
        return machine
    same = (earlier.hardware_id, earlier.limits_id) == (machine.hardware_id, machine.limits_id)
    return with_signature(machine, found) if found is not None and same else machine
