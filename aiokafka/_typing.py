"""Types for annotations: those that Python 3.10 lacks, and types whose import is deferred.

Imports under TYPE_CHECKING do not suffice for public functions: dependency injection containers
evaluate annotations at run time, in the module of the function.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, ForwardRef, Protocol

__all__ = ["MYPY", "Self", "Unpack", "later"]

# Mypy treats this name as True, other type checkers do not. It is for code that only Mypy needs.
MYPY = False

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack
elif sys.version_info >= (3, 11):
    from typing import Self, Unpack
else:
    Self = Any

    class Unpack:
        """Stands for `typing.Unpack` on Python 3.10; `Unpack[...]` is Any there."""

        def __class_getitem__(cls, options: Any) -> Any:
            return Any


def later(path: str) -> Any:
    """Return a forward reference to the type at `path`. The module of the type is imported only
    when the annotation is evaluated.

    Use it if a program may not need the module of the type, or if that module imports the module
    with the annotation. The reference cannot have type parameters.
    """
    module, _, name = path.rpartition(".")
    stand_in = ForwardRef(f"__import__({module!r}, fromlist=({name!r},)).{name}")
    if sys.version_info >= (3, 11):
        return stand_in
    return Annotated[stand_in, "later"]  # Python 3.10 cannot put a ForwardRef into a union


# -- Types of keys and values, of records and clients

# In annotations without type parameters (`AIOKafkaConsumer`), keys and values are Any, as are the
# items of a bare `list`. The constructors infer the types from the (de)serializers; without a
# (de)serializer, the type is `bytes | None`.


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    KT = TypeVar("KT", covariant=True, default=Any)
    VT = TypeVar("VT", covariant=True, default=Any)
    KeySent = TypeVar("KeySent", contravariant=True, default=Any)
    ValueSent = TypeVar("ValueSent", contravariant=True, default=Any)

    # For constructors. Because of the bound, Pyright infers the parameter type of a lambda.
    Key = TypeVar("Key", bound=Any, default=bytes | None)
    Value = TypeVar("Value", bound=Any, default=bytes | None)
    Sendable = bytes | bytearray | memoryview | None
    KeyGiven = TypeVar("KeyGiven", bound=Any, default=Sendable)
    ValueGiven = TypeVar("ValueGiven", bound=Any, default=Sendable)
    Given = TypeVar("Given", bound=Any, contravariant=True)

    class Serializer(Protocol[Given]):
        """A function that converts a key or a value to bytes; it may be `async`. A second
        parameter `ctx`, for the context, needs a default value to pass type checkers."""

        def __call__(self, data: Given, /) -> bytes | Awaitable[bytes | None] | None: ...

    Result = TypeVar("Result", bound=Any)
    # A function that converts bytes to a key or a value; it may be `async`.
    Deserializer = Callable[[bytes], Awaitable[Result] | Result]

    # The default arguments of constructors: Pyright infers key and value types from them. Mypy uses
    # the defaults of the type variables.
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
    Serializer = Callable[[TypeVar("Given")], bytes | Awaitable[bytes | None] | None]
    Result = TypeVar("Result")
    Deserializer = Callable[[bytes], Awaitable[Result] | Result]
    as_it_is = as_bytes = None
