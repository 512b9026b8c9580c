"""The base class of assignors."""

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


# -- Methods that can be called on an instance and on the class


F = TypeVar("F", bound=Callable[..., Any])


class Either:
    """A method that can also be called on the class, where it uses one shared instance.

    In aiokafka all methods of assignors are class methods: a program may call them on the class,
    and an overriding class method may call them by `super()`. Such calls share the state of one
    instance. A consumer makes its own instance if possible.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __get__(self, instance: object | None, owner: type[Any]) -> Any:
        if instance is not None:
            return types.MethodType(self._function, instance)
        # mock.create_autospec() reads methods of abstract classes, which have no instance.
        stand_in = owner if getattr(owner, "__abstractmethods__", None) else _of_class(owner)
        return types.MethodType(self._function, stand_in)


def _of_class(owner: type[Any]) -> Any:
    """Return the shared instance of an assignor class."""
    made = vars(owner).get("_of_class")
    if made is None:
        # Do not call the constructor, whose arguments are unknown: the state has class defaults.
        made = owner._of_class = object.__new__(owner)
    return made


if TYPE_CHECKING:

    def either(function: F) -> F:
        """Return the method; at run time, an `Either` that is callable on the class, too."""
        return function

else:
    either = Either


if TYPE_CHECKING:
    from aiokafka.cluster import ClusterMetadata
else:
    ClusterMetadata = later("aiokafka.cluster.ClusterMetadata")


class AbstractPartitionAssignor(abc.ABC):
    """Assigns partitions. The members of a group agree on one assignor that all of them support.

    `partition_assignment_strategy` has classes or instances. A consumer makes its own instance of a
    class, so an assignor may keep state on `self`; class methods work as well.
    """

    supports_cooperative: ClassVar[bool] = False
    """Whether members keep their partitions during a rebalance (KIP-429). Then the first assignment
    omits each partition that another member owns. The owner revokes the partition, and a second
    rebalance assigns it. So `assign()` must return the same result for the same members."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Name by which the members agree on this assignor; usually a class attribute."""

    @abc.abstractmethod
    def assign(
        self, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Return the assignment of each member, by member id. Called on the group's leader only."""

    @abc.abstractmethod
    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """Return the metadata of this member for the leader. Called before each join."""

    @abc.abstractmethod
    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Called on every member after a rebalance, with its own assignment."""

    @either
    def on_generation_assignment(self, generation: int) -> None:
        """Called before `on_assignment` with the group's generation, -1 after a lost assignment."""
        return
