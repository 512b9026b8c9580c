"""Names for annotations: features that Python 3.10 lacks, and types that are imported on demand.

Dependency injection containers evaluate the hints of functions. Python looks up the names in the
module of the function, and fails for names that are imported under TYPE_CHECKING only.
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
        """A placeholder on Python 3.10, which has no Unpack."""

        def __class_getitem__(cls, options: Any) -> Any:
            return Any


def later(path: str) -> Any:
    """Return a stand-in for the type at `path`, whose module is imported when hints are evaluated.

    Used for a type whose module a program may never need, or whose module imports the annotated
    module. `typing` accepts the stand-in as a type, but not with type parameters.
    """
    module, _, name = path.rpartition(".")
    stand_in = ForwardRef(f"__import__({module!r}, fromlist=({name!r},)).{name}")
    if sys.version_info >= (3, 11):
        return stand_in
    return Annotated[stand_in, "later"]  # in Python 3.10 a union accepts no bare ForwardRef


# -- Types of keys and values, of records and clients

# Without type parameters, keys and values are Any, as with `list`. In a client constructed without
# (de)serializers, keys and values are bytes.


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    KT = TypeVar("KT", covariant=True, default=Any)
    VT = TypeVar("VT", covariant=True, default=Any)
    KeySent = TypeVar("KeySent", contravariant=True, default=Any)
    ValueSent = TypeVar("ValueSent", contravariant=True, default=Any)

    # For constructors. The bound makes Pyright infer the parameter type of a lambda.
    Key = TypeVar("Key", bound=Any, default=bytes | None)
    Value = TypeVar("Value", bound=Any, default=bytes | None)
    Sendable = bytes | bytearray | memoryview | None
    KeyGiven = TypeVar("KeyGiven", bound=Any, default=Sendable)
    ValueGiven = TypeVar("ValueGiven", bound=Any, default=Sendable)
    Given = TypeVar("Given", bound=Any, contravariant=True)

    class Serializer(Protocol[Given]):
        """A function that turns a key or a value into bytes."""

        def __call__(self, data: Given, /) -> bytes | None: ...

    # Pyright infers types from default arguments, Mypy from the defaults of type variables.
    def as_it_is(data: bytes) -> bytes | None:
        """The default deserializer: return the bytes."""

    def as_bytes(data: Sendable, /) -> bytes | None:
        """The default serializer: send the bytes."""
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
