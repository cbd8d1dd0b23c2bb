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
from advisor.policy.launch import values
from advisor.policy.launch.values import memory_policy
from advisor.ranges import start_with
from advisor.topology.files import span

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


class Plan(NamedTuple):
    """A setting, what that is in words, how it was come by, and what is to be known beside it.

    `setting` None: the command runs as it is.
    """

    setting: Setting | None
    what: str
    basis: str
    why: str
    warnings: tuple[str, ...] = ()


def by_hand(asked: Asked, base: Answer) -> Answer:
    """An answer with the parts asked for by hand in the place of its own.

    Args:
        asked: what was named.
        base: what was recommended.

    Returns:
        An answer without figures: nobody measured this.

    Raises:
        PlacementError: a placement that makes no sense here, or has fewer CPUs than threads.
    """
    named = {name: value for name, value in asked._asdict().items() if value is not None}
    changed = base._replace(**named, basis=BY_HAND, why="asked for")
    if asked.placement is None and asked.threads is None:
        return changed
    expression = base.placement if asked.placement is None else asked.placement
    return _placed(changed, expression, asked.threads or base.threads)


def _placed(answer: Answer, expression: str, threads: int | None) -> Answer:
    """The answer with a team on this machine. `threads` None: as many as the placement has CPUs.

    Raises:
        PlacementError: the placement makes no sense here, or has fewer CPUs than threads.
    """
    from advisor.identity import here
    from advisor.topology.placement import evaluate

    site = here()
    cpus = evaluate(expression, site.array, site.allowed, threads, site.groupings)
    return answer._replace(placement=expression, cpus=cpus, threads=threads or len(cpus or site.allowed))


def alone(asked: Asked) -> Plan:
    """What was named by hand, and nothing beside it.

    Raises:
        PlacementError: a placement that makes no sense here, or has fewer CPUs than threads.
        BadInput: another value that makes no sense.
    """
    named = {name: value for name, value in asked._asdict().items() if value is not None}
    answer = Answer("by hand", **named)
    if asked.placement is not None:
        answer = _placed(answer, asked.placement, asked.threads)
    parts = _parts_of(asked, answer)
    changes = {name: value for one in parts for name, value in one[1].items()}
    setting = Setting(changes, answer.cpus, memory_policy(answer))
    return Plan(setting, ", ".join(words for words, _ in parts), BY_HAND, "asked for; all else is as it was")


def _parts_of(asked: Asked, answer: Answer) -> list[tuple[str, Mapping[str, str | None]]]:
    """Words and variables of each part that was named."""
    parts: list[tuple[str, Mapping[str, str | None]]] = []
    team = values.team_variables(answer) if asked.threads is not None or answer.cpus is not None else {}
    if asked.placement is not None:
        words = f"threads {launch.team_words(answer)}" if team else "not pinned"
        parts.append((words, {**team, **values.place_variables(answer)}))
    elif team:
        parts.append((f"threads {answer.threads}", team))
    if asked.wait_policy is not None:
        parts.append((f"wait policy {asked.wait_policy}", values.wait_variables(answer)))
    if asked.spin is not None:
        name = "GOMP_SPINCOUNT"
        parts.append((f"{name}={asked.spin}", {name: values.wait_variables(answer)[name]}))
    if asked.memory_policy is not None:
        parts.append((f"memory policy {asked.memory_policy}", {}))
    return parts


def tuned_sizes(policy: Policy, kernels: Iterable[str]) -> tuple[int, ...]:
    """Every n at which a policy's tables were tuned here for some kernels; those that others know where none was."""
    known = [section for kernel in kernels for section in policy.sections(kernel)]
    own = [section for section in known if not section.get("basis")]
    return tuple(sorted({n for section in own or known for n in section["tuned_n"]}))


def setting(answer: Answer) -> Setting:
    """What an answer sets; for a GPU what its launcher reads, for the CPUs the team and the process part.

    Raises:
        BadInput: a value that a table must not hold.
    """
    if answer.device:
        stale = [name for name in os.environ if name.startswith(("ADVISOR_VARIANT", "ADVISOR_TOOL", KNOBS))]
        return Setting({**dict.fromkeys(stale), **launch.device_variables(answer)}, None, "default")
    return Setting(launch.variables(answer), answer.cpus, memory_policy(answer))


def plan(answer: Answer) -> Plan:
    """What an answer sets, in words too. DEFAULT sets nothing: nobody measured it here.

    Raises:
        BadInput: a value that a table must not hold.
    """
    if answer.basis == "DEFAULT":
        return Plan(None, "the command runs as it is", answer.basis, answer.why, answer.warnings)
    if answer.device:
        what = f"{answer.variant} on {answer.device}"
    else:
        what = f"threads {launch.team_words(answer)}, {launch.process_words(answer)}"
    process = {"wait_policy": answer.wait_policy, "spin": answer.spin, "memory_policy": answer.memory_policy}
    why = answer.why.replace(f"; {start_with(process)}", "")  # that is what is being done
    return Plan(setting(answer), what, answer.basis, why, answer.warnings)


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
        raise _no_program(command[0])
    return path


def _no_program(name: str) -> NoCommand:
    """Why a name is no program."""
    if os.sep not in name:
        return NoCommand("the command must be on PATH", NOT_FOUND, got=name, next_step="check its name")
    if not os.path.exists(name):
        return NoCommand("the command must be a file that is there", NOT_FOUND, got=name, next_step="check its path")
    step = "make it executable, or name the program that reads it"
    return NoCommand("the command must be an executable file", NOT_RUNNABLE, got=name, next_step=step)


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
        kept = os.sched_getaffinity(0)
    except (OSError, AttributeError, OverflowError) as error:
        say(f"not pinned: {error}")
        return
    gone = [cpu for cpu in wanted.cpus if cpu not in kept]  # of CPUs that may not be used the kernel takes the others
    if gone:
        say(f"pinned to the other CPUs of the team alone: {span(sorted(gone))} may not be used now")


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
