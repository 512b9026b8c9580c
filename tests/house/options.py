"""Generate types and docstrings of options from their declarations in `aiokafka._config`.

`python -m tests.house.options` writes `aiokafka/options.py`, and the lists of options in the
docstrings of the clients.
"""

from __future__ import annotations

import ast
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path

from aiokafka._config import ClientConfig, SecurityConfig
from aiokafka._config.admin import AdminConfig
from aiokafka._config.consumer import ConsumerConfig
from aiokafka._config.options import MISSING, Option, Options
from aiokafka._config.producer import ProducerConfig
from aiokafka._config.share import ShareConsumerConfig

PACKAGE = Path(__file__).parent.parent.parent / "aiokafka"

CLIENT: tuple[type[Options], ...] = (ClientConfig, SecurityConfig)
CLIENTS: dict[str, tuple[str, tuple[type[Options], ...]]] = {
    "client.py": ("AIOKafkaClient", CLIENT),
    "admin/client.py": ("AIOKafkaAdminClient", (AdminConfig, SecurityConfig)),
    "producer/producer.py": ("AIOKafkaProducer", (ProducerConfig, *CLIENT)),
    "consumer/consumer.py": ("AIOKafkaConsumer", (ConsumerConfig, *CLIENT)),
    "share/consumer.py": ("AIOKafkaShareConsumer", (ShareConsumerConfig, *CLIENT)),
}
# These options are parameters of the constructors, whose types give the types of the records.
APART = {"key_serializer", "value_serializer", "key_deserializer", "value_deserializer"}
# Defaults that the declarations cannot import, as the clients create them.
SHOWN = {
    "partition_assignment_strategy": "[RoundRobinPartitionAssignor]",
    "partitioner": "DefaultPartitioner()",
}
MARK = "Options, as keyword arguments (times in milliseconds, sizes in bytes):"

HEAD = '''"""The options of clients as types, for dicts of options, editors and type checkers.

`AIOKafkaConsumer(**options)` is checked when `options` is a `ConsumerOptions`. Written by
`make options` from what `aiokafka._config` declares.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from datetime import timedelta
from socket import socket
from ssl import SSLContext
from typing import TYPE_CHECKING, Literal, TypedDict

from aiokafka._config.security import Credential
from aiokafka.abc import AbstractSaslMechanism, AbstractTokenProvider
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.interceptors import ConsumerInterceptor, ProducerInterceptor
from aiokafka.metrics import ConsumerMetricsCollector, ProducerMetricsCollector
from aiokafka.structs import BrokerAddress, Dialed

if TYPE_CHECKING:
    from aiokafka._config.security import TlsSource
else:
    # `aiokafka._config` has this type for type checkers only, so that it need not import `ssl`.
    TlsSource = SSLContext | Callable[[], SSLContext | Awaitable[SSLContext]]

Servers = str | list[str] | tuple[str, ...] | AbstractSet[str]
BootstrapServers = Servers | Callable[[], Servers | Awaitable[Servers]]
SaslMechanism = (
    Literal["PLAIN", "GSSAPI", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
    | AbstractSaslMechanism
)
Target = tuple[str, int] | str | socket | Dialed | None
Dialer = Callable[[BrokerAddress], Target | Awaitable[Target]]

__all__ = [
    "AdminOptions",
    "ClientOptions",
    "ConsumerOptions",
    "ProducerOptions",
    "ShareConsumerOptions",
]
'''
CLASSES = (
    ("ClientOptions", "TypedDict", "Options of all clients.", CLIENT),
    ("AdminOptions", "ClientOptions", "Options of admin clients.", (AdminConfig,)),
    ("ConsumerOptions", "ClientOptions", "Options of consumers.", (ConsumerConfig,)),
    ("ProducerOptions", "ClientOptions", "Options of producers.", (ProducerConfig,)),
    (
        "ShareConsumerOptions",
        "ClientOptions",
        "Options of share consumers.",
        (ShareConsumerConfig,),
    ),
)


def default_of(option: Option) -> str:
    """Return the text of the default; "" if there is none, or if it depends on other options."""
    if option.keyword == "client_id" or option.default is MISSING:
        return ""
    shown = SHOWN.get(option.keyword)
    if shown is None and isinstance(option.default, str):
        shown = json.dumps(option.default)
    return shown or repr(option.default)


def wrapped(text: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        text, 100, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    )


def typed_options() -> str:
    """Return the text of `aiokafka/options.py`."""
    return HEAD + "".join(f"\n\n{typed(*each)}" for each in CLASSES)


def typed(name: str, base: str, about: str, configs: tuple[type[Options], ...]) -> str:
    lines = [f"class {name}({base}, total=False):", f'    """{about}"""']
    known = APART | (ClientConfig.keywords() if base == "ClientOptions" else frozenset())
    for option in (each for config in configs for each in config.describe()):
        if option.keyword not in known:
            default = default_of(option)
            text = f"{option.help} Default: {default}." if default else option.help
            lines += ["", *annotation(option)]
            quoted = wrapped(f'"""{text}"""', "    ", "    ")
            lines += quoted
    return "\n".join(lines) + "\n"


def annotation(option: Option) -> list[str]:
    line = f"    {option.keyword}: {option.annotation}"
    if len(line) <= 100:
        return [line]
    # Break the line as `ruff format` does.
    start, _, rest = line.partition("[")
    inner, _, end = rest.rpartition("]")
    broken = [f"{start}[", f"        {inner}", f"    ]{end}"]
    if len(broken[1]) > 100:
        broken[1:2] = [f"        {each.strip()}," for each in inner.split(",")]
    return broken


def listed(configs: tuple[type[Options], ...]) -> Iterator[str]:
    """Yield the lines of the list of options in a docstring."""
    for option in (each for config in configs for each in config.describe()):
        default = default_of(option)
        shown = f"`{option.keyword}={default}`" if default else f"`{option.keyword}`"
        yield from wrapped(f"- {shown}: {option.help}", "    ", "      ")


def with_list(text: str, name: str, configs: tuple[type[Options], ...]) -> str:
    """Return `text`, a module, with a new list of options in the docstring of its class `name`."""
    node = next(
        each
        for each in ast.parse(text).body
        if isinstance(each, ast.ClassDef) and each.name == name
    )
    start, end = node.body[0].lineno, node.body[0].end_lineno
    assert end is not None
    lines = text.split("\n")
    mark = lines.index(f"    {MARK}", start - 1, end)
    return "\n".join([*lines[: mark + 1], "", *listed(configs), *lines[end - 1 :]])


def texts() -> dict[Path, str]:
    """Return the text of each file with generated parts."""
    found = {PACKAGE / "options.py": typed_options()}
    for path, (name, configs) in CLIENTS.items():
        found[PACKAGE / path] = with_list((PACKAGE / path).read_text(), name, configs)
    return found


if __name__ == "__main__":
    for path, text in texts().items():
        path.write_text(text)
