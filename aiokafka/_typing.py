"""What annotations name: what Python 3.10 lacks, and types whose modules are loaded when asked for.

Containers that fill in arguments evaluate the hints of a function. Python then looks each name up
in the module of the function, and fails for one that is imported for type checkers only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ForwardRef, Protocol

__all__ = ["Self", "Unpack", "later"]

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack
elif sys.version_info >= (3, 11):
    from typing import Self, Unpack
else:
    Self = Any

    class Unpack:
        """Stand for the types of options, which Python 3.10 cannot name one by one."""

        def __class_getitem__(cls, options: Any) -> Any:
            return Any


def later(path: str) -> Any:
    """Return a stand-in for the type at `path`, whose module is loaded when hints are evaluated.

    It is for a module that a program may never need, or that imports the one with the annotation.
    `typing` takes it for the type, except where parameters of the type are given.
    """
    module, _, name = path.rpartition(".")
    stand_in = ForwardRef(f"__import__({module!r}, fromlist=({name!r},)).{name}")
    if sys.version_info >= (3, 11):
        return stand_in
    return Annotated[stand_in, "later"]  # a bare one cannot be part of a union there


# -- The types of keys and values: of records, and of the clients that read and write them

# Without parameters the names of classes stand for keys and values of any type, as `list` does.
# A constructor without (de)serializers makes a client of bytes.


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    KT = TypeVar("KT", covariant=True, default=Any)
    VT = TypeVar("VT", covariant=True, default=Any)
    KeySent = TypeVar("KeySent", contravariant=True, default=Any)
    ValueSent = TypeVar("ValueSent", contravariant=True, default=Any)

    # Of constructors. They have a bound for the sake of Pyright, which takes it for the type of the
    # argument of a lambda.
    Key = TypeVar("Key", bound=Any, default=bytes | None)
    Value = TypeVar("Value", bound=Any, default=bytes | None)
    Sendable = bytes | bytearray | memoryview | None
    KeyGiven = TypeVar("KeyGiven", bound=Any, default=Sendable)
    ValueGiven = TypeVar("ValueGiven", bound=Any, default=Sendable)
    Given = TypeVar("Given", bound=Any, contravariant=True)

    class Serializer(Protocol[Given]):
        """A function that turns a key or a value into bytes."""

        def __call__(self, data: Given, /) -> bytes | None: ...

    # Pyright takes types from defaults, Mypy from those of the type variables.
    def as_it_is(data: bytes) -> bytes | None:
        """Leave a key or value as it is, in bytes."""

    def as_bytes(data: Sendable, /) -> bytes | None:
        """Send a key or value of bytes as it is."""
else:
    from typing import TypeVar

    KT = TypeVar("KT", covariant=True)
    VT = TypeVar("VT", covariant=True)
    KeySent = TypeVar("KeySent", contravariant=True)
    ValueSent = TypeVar("ValueSent", contravariant=True)
    Key = TypeVar("Key")
    Value = TypeVar("Value")
    KeyGiven = TypeVar("KeyGiven")
    ValueGiven = TypeVar("ValueGiven")
    Serializer = Callable[[TypeVar("Given")], bytes | None]
    as_it_is = as_bytes = None
