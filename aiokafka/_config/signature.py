"""Show all options in the signature of a constructor that takes them as `**options`.

The options are declared once, in the configuration classes. What type checkers and editors need of
them is in `aiokafka.options`, which is written from those; what runs (`inspect`, `help`, Sphinx,
containers that fill in arguments) asks for the signature.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any

from aiokafka._config.options import Options

__all__ = ["show_options"]


def show_options(function: Callable[..., Any], *configs: type[Options], **defaults: object) -> None:
    """Give `function` a signature with the options of `configs` in place of its `**options`.

    `defaults` are those that differ from what the configurations declare.
    """
    plain = signature(function)
    own = [each for each in plain.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
    named = {each.name for each in own}
    listed = [
        Parameter(
            each.keyword,
            Parameter.KEYWORD_ONLY,
            default=defaults.get(each.keyword, each.default),
            annotation=each.annotation,
        )
        for config in configs
        for each in config.describe()
        if each.keyword not in named
    ]
    shown: Any = function
    shown.__signature__ = plain.replace(parameters=[*own, *listed])
