"""What an assignor is."""

from __future__ import annotations

import abc
import types
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from aiokafka._typing import later
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

__all__ = ["AbstractPartitionAssignor", "Either", "either"]


# -- Methods of an assignor with state that can be called on its class as well


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


if TYPE_CHECKING:
    from aiokafka.cluster import ClusterMetadata
else:
    ClusterMetadata = later("aiokafka.cluster.ClusterMetadata")


class AbstractPartitionAssignor(abc.ABC):
    """Assigns partitions. The members of a group agree on one assignor that all of them support.

    A consumer is given assignors as classes or as instances. It makes one instance of a class for
    itself, so an assignor may keep state on `self`; class methods work as well.
    """

    supports_cooperative: ClassVar[bool] = False
    """Whether members keep their partitions during a rebalance (KIP-429). What moves is left out of
    what `assign()` returns, until its owner has given it up; the same members and partitions must
    then lead to the same result."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Name by which the members agree on this assignor; usually a class attribute."""

    @abc.abstractmethod
    def assign(
        self, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Return what each member gets, by member id. Called on the leader of the group only."""

    @abc.abstractmethod
    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """Return what this member tells the leader when it joins."""

    @abc.abstractmethod
    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Take note of what this member got; called on every member after a rebalance."""

    @either
    def on_generation_assignment(self, generation: int) -> None:
        """Take note of the generation of the group; called before `on_assignment`."""
        return
