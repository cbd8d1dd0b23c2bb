"""Makers of machines that were tuned elsewhere. Times are made up; no test takes them for measurements."""

from types import SimpleNamespace

from fake import FakeSpec, fake_machine, fake_variant, fake_variants

from advisor.records import Build, Choice, Process, Team
from advisor.search.elsewhere import Elsewhere, Timed
from advisor.search.portable import portable
from advisor.search.space import SpaceOptions, Toolchain
from advisor.search.traits import model_of, spot_of

SPEC = FakeSpec()
GROUP = ("float32", "warm", SPEC.problem(1).shape)


def machine(cores, model="a model", allowed=None):
    """A machine with so many cores."""
    return fake_machine(cores=cores, allowed=allowed)._replace(vendor="maker", model_name=model)


def _variants(wide=()):
    return (*fake_variants(), fake_variant("wide", 3, {}, {}, requires=tuple(wide)))


options = SimpleNamespace(space=SpaceOptions((Toolchain("gcc-12", "libgomp"),)), variants=_variants)


def timed(variant, threads, wait="default", knobs=()):
    """A choice that somebody measured."""
    build = Build(variant, "f" * 12, knobs, "gcc-13", "native")
    return Choice(build, Team(threads, ""), Process("libgomp", wait, None, "default"))


def known(name, found, times):
    """A machine that measured: n -> choice -> ns; its table takes the fastest, and one thread by default."""
    cells = {n: {portable(c): Timed(ns, c, True) for c, ns in each.items()} for n, each in times.items()}
    picks = {n: min(each, key=each.__getitem__) for n, each in times.items()}
    default = next(iter(next(iter(times.values()))))
    return Elsewhere(name, model_of(found), found, spot_of(found), {GROUP: cells}, {GROUP: picks}, {GROUP: default})


def runs_all(machine_known, what):
    """Every machine runs every choice."""
    return True
