"""Arrays that are numpy's inside and not outside: they take numpy's functions over as CuPy's do, and refuse what those
refuse: to become numpy's unasked, to meet an array of numpy's, arguments that CuPy's methods lack."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np


class Guest(np.lib.mixins.NDArrayOperatorsMixin):
    """An array of a device that is none."""

    def __init__(self, inside):
        self._inside = inside

    def __array__(self, *_, **__):
        raise TypeError("implicit conversion to numpy's array")

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        assert method == "__call__", method
        return guest(getattr(ufunc, method)(*unpacked(inputs), **unpacked(kwargs)))

    def __array_function__(self, function, _types, args, kwargs):
        return guest(function(*unpacked(args), **unpacked(kwargs)))

    def __getitem__(self, index):
        return guest(self._inside[unpacked(index)])

    def __setitem__(self, index, value):
        self._inside[unpacked(index)] = unpacked(value)

    def __len__(self):
        return len(self._inside)

    def __float__(self):
        return float(self._inside)

    def __bool__(self):
        return bool(self._inside)

    def get(self):
        return self._inside.copy()

    @property
    def T(self):  # noqa: N802 as numpy has it
        return guest(self._inside.T)

    @property
    def shape(self):
        return self._inside.shape

    @property
    def size(self):
        return self._inside.size

    @property
    def dtype(self):
        return self._inside.dtype

    def __getattr__(self, name):
        if name not in ("astype", "reshape", "ravel", "view", "sum", "mean", "max", "min", "cumsum"):
            raise AttributeError(name)

        def call(*args, **kwargs):
            assert set(kwargs) <= {"axis", "keepdims", "dtype"}, kwargs
            return guest(getattr(self._inside, name)(*unpacked(args), **kwargs))

        return call


def guest(inside):
    """The result of a function of numpy's as a device would give it: no scalars."""
    return Guest(np.asarray(inside))


def unpacked(argument):
    """Arguments as numpy takes them."""
    if isinstance(argument, np.ndarray):
        raise TypeError("an array of numpy's beside one of a device")
    if isinstance(argument, Guest):
        return argument._inside
    if isinstance(argument, tuple | list):
        return type(argument)(unpacked(one) for one in argument)
    return {key: unpacked(one) for key, one in argument.items()} if isinstance(argument, dict) else argument


def _generator(seed):
    own = np.random.default_rng(seed)
    return SimpleNamespace(standard_normal=lambda size, dtype: Guest(own.standard_normal(size, dtype=dtype)))


xp = SimpleNamespace(
    empty=lambda shape, dtype=float: Guest(np.empty(shape, dtype)),
    arange=lambda *args, **kwargs: Guest(np.arange(*args, **kwargs)),
    asarray=lambda array: Guest(np.array(array)),
    random=SimpleNamespace(default_rng=_generator),
)
"""A module of such arrays."""
