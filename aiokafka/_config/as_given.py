"""Options, by the private names of aiokafka's objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiokafka._config.options import Options

__all__ = ["find_option"]


def find_option(owner: object, name: str, configs: Iterable[Options | None]) -> Any:
    """Return the option of an attribute that `owner` does not have, as it was given: of
    ``client._ssl_context``, which programs and tests read, `ssl_context`.

    Raises AttributeError if there is none.
    """
    keyword = name[1:]
    for config in configs:
        if config is not None and name.startswith("_") and keyword in config.keywords():
            return config.as_given(keyword)
    text = f"{type(owner).__name__!r} object has no attribute {name!r}"
    raise AttributeError(text, name=name, obj=owner)
