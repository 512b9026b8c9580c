"""Options, by the private names of aiokafka's objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from aiokafka._config.options import Options

__all__ = ["with_options"]

C = TypeVar("C")


class _AsGiven:
    """An option as it was given: ``client._ssl_context``, which programs and tests read, is
    `ssl_context`. What an object or a subclass has by this name goes before it."""

    __slots__ = ("_config_of", "_keyword")

    def __init__(self, keyword: str, config_of: Callable[[object], Any]) -> None:
        self._keyword = keyword
        self._config_of = config_of

    def __get__(self, owner: object, kind: type | None = None) -> Any:
        return self if owner is None else self._config_of(owner).as_given(self._keyword)


def with_options(configs: Mapping[str, type[Options]]) -> Callable[[type[C]], type[C]]:
    """Give a class an attribute for each option of `configs`, whose keys are the attributes that
    lead to them.

    One `__getattr__` would do the same, but CPython looks up each attribute of such an object the
    slow way, which is 5 % of what `send` costs.
    """

    def give(owner: type[C]) -> type[C]:
        for path, config in configs.items():
            for keyword in config.keywords():
                if not hasattr(owner, f"_{keyword}"):
                    setattr(owner, f"_{keyword}", _AsGiven(keyword, attrgetter(path)))
        return owner

    return give
