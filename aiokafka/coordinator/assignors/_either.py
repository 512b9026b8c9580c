"""Methods of an assignor with state that can be called on its class as well."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["Either", "either"]

F = TypeVar("F", bound=Callable[..., Any])


class Either:
    """A method whose class, when it is called on that, has an instance of its own.

    In aiokafka all methods of assignors are class methods: a program may call them on the class,
    and a class method that overrides one may call it by `super()`. What such calls note is shared
    by all that use the class; a consumer makes an instance for itself where it can.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __get__(self, instance: object | None, owner: type[Any]) -> Any:
        if instance is not None:
            return types.MethodType(self._function, instance)
        # Of a class that cannot have an instance, tools such as mock.create_autospec() look at it.
        stand_in = owner if getattr(owner, "__abstractmethods__", None) else _of_class(owner)
        return types.MethodType(self._function, stand_in)


def _of_class(owner: type[Any]) -> Any:
    """Return the instance that stands for a class."""
    made = vars(owner).get("_of_class")
    if made is None:
        # The state has defaults, so there is no need to know what the constructor takes.
        made = owner._of_class = object.__new__(owner)
    return made


if TYPE_CHECKING:

    def either(function: F) -> F:
        """Make a method work on the class, too."""
        return function

else:
    either = Either
