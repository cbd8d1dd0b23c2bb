"""Run a command under a placement and a process part: this process sets them, and then becomes the command.

The command keeps the process id, so that signals and its exit status are its own.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from advisor.answers import Answer
from advisor.errors import AdvisorError, BadInput
from advisor.policy import launch
from advisor.policy.launch.values import memory_policy

if TYPE_CHECKING:
    from advisor.lookup import Policy

NOT_FOUND, NOT_RUNNABLE = 127, 126
"""Exit statuses where there is no such command, and where it cannot be run. Source: env(1), POSIX."""

KNOBS = "ADVISOR_KNOB_"
BY_HAND = "BY HAND"
"""What stands where an answer has its basis."""


class NoCommand(AdvisorError, FileNotFoundError):
    """The command cannot be started; `status` is what a shell would end with."""

    def __init__(self, rule: str, status: int, *, got: str, next_step: str) -> None:
        self.status = status
        super().__init__(rule, got=got, next_step=next_step)


class Asked(NamedTuple):
    """A placement and process part by hand; None: as recommended, or as it is where nothing was."""

    placement: str | None = None
    threads: int | None = None
    wait_policy: str | None = None
    spin: int | None = None
    memory_policy: str | None = None


class Setting(NamedTuple):
    """What a command starts with. `environment`: name -> value, None: unset. `cpus`: None where it is not pinned."""

    environment: Mapping[str, str | None]
    cpus: tuple[int, ...] | None
    memory: str


def by_hand(asked: Asked, base: Answer | None) -> Answer:
    """An answer with the parts asked for by hand in the place of its own.

    Args:
        asked: what was named.
        base: what was recommended; None where nothing was asked.

    Returns:
        An answer without figures: nobody measured this.

    Raises:
        PlacementError: a placement that makes no sense here, or has fewer CPUs than threads.
    """
    from advisor.identity import here
    from advisor.topology.placement import evaluate

    start = base or Answer("by hand")
    named = {name: value for name, value in asked._asdict().items() if value is not None}
    changed = start._replace(**named, basis=BY_HAND, why="asked for")
    if asked.placement is None and asked.threads is None:
        return changed if base is not None else changed._replace(threads=len(os.sched_getaffinity(0)))
    site = here()
    expression = start.placement if asked.placement is None and base is not None else asked.placement or ""
    wanted = asked.threads or (None if base is None else base.threads)
    cpus = evaluate(expression, site.array, site.allowed, wanted, site.groupings)
    return changed._replace(placement=expression, cpus=cpus, threads=wanted or len(cpus or site.allowed))


def tuned_sizes(policy: Policy, kernels: Iterable[str]) -> tuple[int, ...]:
    """Every n at which a policy's tables were tuned for some kernels."""
    found = {n for kernel in kernels for section in policy.sections(kernel) for n in section["tuned_n"]}
    return tuple(sorted(found))


def setting(answer: Answer) -> Setting:
    """What an answer sets; for a GPU what its launcher reads, for the CPUs the team and the process part.

    Raises:
        BadInput: a value that a table must not hold.
    """
    if answer.device:
        stale = [name for name in os.environ if name.startswith(("ADVISOR_VARIANT", "ADVISOR_TOOL", KNOBS))]
        return Setting({**dict.fromkeys(stale), **launch.device_variables(answer)}, None, "default")
    return Setting(launch.variables(answer), answer.cpus, memory_policy(answer))


def words(answer: Answer) -> str:
    """What is set, and how that was come by, in one line."""
    if answer.device:
        what = f"{answer.variant} on {answer.device}"
    else:
        what = f"threads {launch.team_words(answer)}, {launch.process_words(answer)}"
    return f"{what}; {answer.basis}: {answer.why}"


def find(command: Sequence[str]) -> str:
    """The path of a command's program.

    Raises:
        BadInput: there is no command.
        NoCommand: no such program.
    """
    if not command or not command[0]:
        raise BadInput("a command must follow", got="none", next_step="for example: advisor run --n 4096 -- ./server")
    path = shutil.which(command[0])
    if path is None:
        there = os.path.exists(command[0]) and os.sep in command[0]
        rule = "the command must be an executable file" if there else "the command must be on PATH"
        step = "make it executable, or name the program that reads it" if there else "check its name"
        raise NoCommand(rule, NOT_RUNNABLE if there else NOT_FOUND, got=command[0], next_step=step)
    return path


def start(path: str, command: Sequence[str], wanted: Setting | None, say: Callable[[str], None]) -> NoReturn:
    """Become the command.

    Args:
        path: of its program.
        command: its argv.
        wanted: what it starts with; None: everything stays as it is.
        say: takes a sentence on what could not be set; the command starts all the same.

    Raises:
        NoCommand: the system does not run it.
    """
    if wanted is not None:
        _pin(wanted, say)
        _place(wanted, say)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, and what is ignored stays so in the command
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(path, list(command), environment(wanted, os.environ))
    except OSError as error:
        step = f"{error.strerror}; name the program that reads it"
        raise NoCommand("the system must run the command", NOT_RUNNABLE, got=path, next_step=step) from None


def environment(wanted: Setting | None, own: Mapping[str, str]) -> dict[str, str]:
    """The environment of the command: this one with what is set and unset."""
    changes = {} if wanted is None else wanted.environment
    kept = {name: value for name, value in own.items() if name not in changes}
    return {**kept, **{name: value for name, value in changes.items() if value is not None}}


def _pin(wanted: Setting, say: Callable[[str], None]) -> None:
    """Keep the process to the team's CPUs; which thread runs on which, OMP_PLACES says."""
    if wanted.cpus is None:
        return
    try:
        os.sched_setaffinity(0, wanted.cpus)
    except (OSError, AttributeError) as error:
        say(f"not pinned: {error}")


def _place(wanted: Setting, say: Callable[[str], None]) -> None:
    """Set the memory policy, which the command inherits."""
    if wanted.memory == "default":
        return
    from advisor.identity import survey
    from advisor.kernels.numa import PolicyRefused, set_policy, where
    from advisor.topology.details import numa_nodes

    limits, layout = survey()
    nodes = numa_nodes("/", layout)
    team = wanted.cpus or [cpu for node in nodes for cpu in node.cpus]
    try:
        set_policy(where(wanted.memory, nodes, team, limits.allowed_mems))
    except (PolicyRefused, BadInput) as error:
        say(f"the memory policy stays as it was: {error}")
