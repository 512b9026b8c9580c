"""Defaults of the process: `aiokafka.defaults`, and a file of Java's properties.

The defaults are process-wide, not bound to a context: frameworks create clients in other tasks and
threads than those in which a program starts.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka import _properties
from aiokafka._config.admin import AdminConfig
from aiokafka._config.client import ClientConfig
from aiokafka._config.consumer import ConsumerConfig
from aiokafka._config.options import (
    DEFAULTS_VARIABLE,
    Choice,
    Flag,
    Milliseconds,
    Number,
    Option,
    Options,
    brief,
    check,
    unknown_option,
)
from aiokafka._config.producer import ProducerConfig
from aiokafka._config.security import SecurityConfig
from aiokafka._config.share import ShareConsumerConfig
from aiokafka._typing import Self, later
from aiokafka.errors import KafkaConfigurationError

if TYPE_CHECKING:
    from aiokafka._typing import Unpack
    from aiokafka.options import (
        AdminOptions,
        ClientOptions,
        ConsumerOptions,
        ProducerOptions,
        ShareConsumerOptions,
    )
else:
    from aiokafka._typing import Unpack

    AdminOptions = later("aiokafka.options.AdminOptions")
    ClientOptions = later("aiokafka.options.ClientOptions")
    ConsumerOptions = later("aiokafka.options.ConsumerOptions")
    ProducerOptions = later("aiokafka.options.ProducerOptions")
    ShareConsumerOptions = later("aiokafka.options.ShareConsumerOptions")

__all__ = ["Defaults", "defaults", "merged"]

_COMMON: tuple[type[Options], ...] = (ClientConfig, SecurityConfig)
_CONFIGS: dict[str, tuple[type[Options], ...]] = {
    "client": _COMMON,
    "producer": (ProducerConfig, *_COMMON),
    "consumer": (ConsumerConfig, *_COMMON),
    "share_consumer": (ShareConsumerConfig, *_COMMON),
    "admin": (AdminConfig, SecurityConfig),
}
# These options cannot have a default of the process: they determine the types of keys and values,
# which a type checker takes from the call of the constructor.
_OF_TYPES = ("key_serializer", "value_serializer", "key_deserializer", "value_deserializer")
# Only one of these can be given: a default for the other one does not apply.
_EITHER = ("bootstrap_servers", "bootstrap_controllers")
_LARGEST_FILE = 1024 * 1024


class _Value(NamedTuple):
    """A default: the option, its value, where it was set, and whether it also replaces an argument
    of the constructor (`is_override`)."""

    option: Option
    value: Any
    source: str
    is_override: bool


_Table = dict[str, dict[str, _Value]]
"""Values by kind of client ("producer" ...) and keyword."""


def _options_of(role: str) -> dict[str, Option]:
    found = {each.keyword: each for config in _CONFIGS[role] for each in config.describe()}
    return {keyword: option for keyword, option in found.items() if keyword not in _OF_TYPES}


# -- Defaults in code


class Defaults:
    """The result of a call of `defaults`: its values apply until `end()`, or until the end of a
    `with` block."""

    def __init__(self, table: _Table) -> None:
        self._table = table
        _in_force.append(self)

    def end(self) -> None:
        """End these defaults; clients that exist keep their options. A second call does
        nothing."""
        if self in _in_force:
            _in_force.remove(self)

    def find(self, role: str) -> dict[str, _Value]:
        """Return the values for a kind of client, by keyword."""
        return self._table.get(role, {})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()


# In the order of the calls of `defaults()`. Only `Defaults` writes to this list.
_in_force: list[Defaults] = []


def defaults(
    *,
    override: bool = False,
    producer: ProducerOptions | None = None,
    consumer: ConsumerOptions | None = None,
    share_consumer: ShareConsumerOptions | None = None,
    admin: AdminOptions | None = None,
    **options: Unpack[ClientOptions],
) -> Defaults:
    """Set defaults of options for all clients that this process creates from now on.

    Use it if a framework that creates clients does not pass on all options. The defaults apply to
    all clients, in all threads and tasks. An option has the value of the first of these sources
    that sets it: `defaults` with `override`; the argument of the constructor, even if it equals the
    declared default; `defaults`; the file that the environment variable `AIOKAFKA_DEFAULTS` names;
    the declared default. Among several calls of `defaults`, the last one wins.

    Args:
        override: Whether the values also replace explicit arguments of constructors, for
            frameworks that always pass a value.
        producer: Options of producers, times in milliseconds.
        consumer: Options of consumers.
        share_consumer: Options of share consumers.
        admin: Options of admin clients.
        options: Options of all clients, such as `client_id`.

    Returns an object whose `end()` ends the defaults. As a context manager, the object ends the
    defaults at the end of the block. Clients log the values that they take from defaults, and list
    them in `health().defaults`.

    Raises TypeError for an unknown option or a value of a wrong type, ValueError for another value
    that is not accepted. A constructor raises the same errors if values contradict each other.

    Example::

        aiokafka.defaults(
            override=True,
            producer={"enable_idempotence": True},
        )
    """
    caller = sys._getframe(1)
    source = f"aiokafka.defaults() at {os.path.basename(caller.f_code.co_filename)}"
    source = f"{source}:{caller.f_lineno}"
    table: _Table = {}
    given: dict[str, Mapping[str, Any]] = dict.fromkeys(_CONFIGS, options)
    own: dict[str, Mapping[str, Any] | None] = {
        "producer": producer,
        "consumer": consumer,
        "share_consumer": share_consumer,
        "admin": admin,
    }
    common = _options_of("client")
    for name in options:
        if name not in common:
            raise _unknown("aiokafka.defaults()", name, common)
    for role in _CONFIGS:
        known = _options_of(role)
        for name, value in {**given[role], **(own.get(role) or {})}.items():
            if name not in known:
                raise _unknown(f"aiokafka.defaults({role}=...)", name, known)
            _check(known[name], value, "aiokafka.defaults()")
            table.setdefault(role, {})[name] = _Value(known[name], value, source, bool(override))
    return Defaults(table)


def _unknown(where: str, name: str, known: Mapping[str, Option]) -> TypeError:
    if name in _OF_TYPES:
        return TypeError(
            f"{where}: {name} cannot have a default, because it determines the types of a client; "
            "pass it to each client"
        )
    hint = str(unknown_option("", name, known)).partition("unknown option")[2]
    for role in _CONFIGS:
        if not hint and name in _options_of(role):
            hint = f"; it is an option of {role}={{...}}"
    return TypeError(f"{where}: unknown option {name!r}{hint}")


def _check(option: Option, value: Any, where: str) -> None:
    try:
        check(option.kind, option.keyword, value, option.opening)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{where}: {error}") from None


# -- Defaults in a file


class _File:
    """The defaults of the file that `AIOKAFKA_DEFAULTS` names, read once."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._source = f"{DEFAULTS_VARIABLE}={path}"
        self._table: _Table = {}
        pairs = _read(path)
        security: dict[tuple[str, bool], dict[str, str]] = {}
        for name, text in pairs.items():
            role, plain, is_override = _split(name)
            if _properties.is_of_security(plain):
                security.setdefault((role, is_override), {})[plain] = text
            else:
                self._add(name, role, plain, text, is_override)
        for (role, is_override), texts in security.items():
            for keyword, value in _security(texts, self._source, pairs.get("sasl.mechanism", "")):
                self._put(role, keyword, value, is_override)
        self._complete()

    def find(self, role: str) -> dict[str, _Value]:
        """Return the values for a kind of client, by keyword."""
        return self._table.get(role, {})

    def _add(self, name: str, role: str, plain: str, text: str, is_override: bool) -> None:
        roles = (role,) if role else tuple(_CONFIGS)
        options = {each: found for each in roles if (found := _by_java_name(each).get(plain))}
        if not options:
            raise _unknown_property(self._source, name, roles, plain)
        # Without a prefix, the value is for each kind of client that accepts it.
        refusals: list[KafkaConfigurationError] = []
        for each, option in options.items():
            try:
                value = _parsed(option, text, f"{self._source}: {name}")
            except KafkaConfigurationError as error:
                refusals.append(error)
            else:
                self._put(each, option.keyword, value, is_override)
        if len(refusals) == len(options):
            raise refusals[0]

    def _put(self, role: str, keyword: str, value: Any, is_override: bool) -> None:
        for each in (role,) if role else _CONFIGS:
            made = _Value(_options_of(each)[keyword], value, self._source, is_override)
            self._table.setdefault(each, {})[keyword] = made

    def _complete(self) -> None:
        """For TLS without settings, trust the certificate authorities of the system, as Java
        does."""
        for role, values in list(self._table.items()):
            protocol = values.get("security_protocol")
            if protocol is not None and "SSL" in protocol.value and "ssl_context" not in values:
                self._put(role, "ssl_context", _tls_context({}), protocol.is_override)


# The file of the last call of `_current_file`.
_files: list[_File] = []


def _current_file() -> _File | None:
    path = os.environ.get(DEFAULTS_VARIABLE)
    if not path:
        return None
    if not _files or _files[0].path != path:
        _files[:] = [_File(path)]
    return _files[0]


def _read(path: str) -> dict[str, str]:
    try:
        with open(path, "rb") as file:
            content = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise KafkaConfigurationError(
            f"{DEFAULTS_VARIABLE}={path}: {error.strerror or error}"
        ) from error
    if len(content) > _LARGEST_FILE:
        raise KafkaConfigurationError(
            f"{DEFAULTS_VARIABLE}={path}: is longer than {_LARGEST_FILE} bytes"
        )
    try:
        pairs = _properties.parse(_properties.decode(content))
    except ValueError as error:
        raise KafkaConfigurationError(f"{DEFAULTS_VARIABLE}={path}: {error}") from None
    # Java removes white space around all values.
    return {name: text.strip() for name, text in pairs.items()}


def _split(name: str) -> tuple[str, str, bool]:
    """Split `producer.override.linger.ms` into ("producer", "linger.ms", True). The role is "" if
    the name has no prefix."""
    prefix, _, rest = name.partition(".")
    role = {"share": "share_consumer"}.get(prefix, prefix)
    if role not in _CONFIGS or role == "client":
        role, rest = "", name
    plain = rest.removeprefix("override.")
    return role, plain, plain != rest


def _by_java_name(role: str) -> dict[str, Option]:
    found: dict[str, Option] = {}
    for keyword, option in _options_of(role).items():
        found[keyword.replace("_", ".")] = found[keyword] = option
        if re.fullmatch(r"[a-z0-9.]+", option.java):
            found.setdefault(option.java, option)
    return found


def _unknown_property(
    where: str, name: str, roles: Iterable[str], plain: str
) -> KafkaConfigurationError:
    known = {keyword for role in roles for keyword in _options_of(role)}
    hint = str(unknown_option("", plain, known)).partition("unknown option")[2]
    return KafkaConfigurationError(f"{where}: {name}: unknown option{hint}")


def _parsed(option: Option, text: str, where: str) -> Any:
    """Return the value for a text in the file. Raises KafkaConfigurationError unless the option
    accepts it."""
    value: Any = text
    kind = option.kind
    if isinstance(kind, Flag):
        value = {"true": True, "false": False}.get(text.lower(), text)
    elif isinstance(kind, (Number, Milliseconds)) or (
        isinstance(kind, Choice) and text not in kind.values
    ):
        if re.fullmatch(r"[+-]?[0-9]+", text):
            value = int(text)
        elif text.lower() in ("none", "null"):
            value = None
    elif text.lower() in ("none", "null") and kind.annotation.endswith("| None"):
        value = None
    try:
        kind.convert(value)
    except (TypeError, ValueError) as error:
        shown = "" if getattr(kind, "secret", False) else f"={brief(text)}"
        reason = f" ({error})" if str(error) else ""
        raise KafkaConfigurationError(f"{where}{shown}: must be {kind.accepts}{reason}") from None
    return value


def _security(texts: Mapping[str, str], where: str, mechanism: str) -> Iterator[tuple[str, Any]]:
    """Yield options for Java's settings of TLS (`ssl.*`) and of the login (`sasl.jaas.config`)."""
    try:
        if _properties.JAAS in texts:
            yield from _properties.login_options(texts[_properties.JAAS], mechanism).items()
        tls = {name: text for name, text in texts.items() if name.startswith("ssl.")}
        if tls:
            yield "ssl_context", _tls_context(tls)
    except (ValueError, OSError) as error:
        named = [text for name, text in texts.items() if name.endswith(".location")]
        files = f" ({', '.join(named)})" if isinstance(error, OSError) and named else ""
        raise KafkaConfigurationError(f"{where}: {error}{files}") from error


def _tls_context(texts: Mapping[str, str]) -> Any:
    arguments, checks_names = _properties.tls_arguments(texts)
    helpers = importlib.import_module("aiokafka.helpers")  # a module of a higher layer
    context = helpers.create_ssl_context(**arguments)
    context.check_hostname = checks_names
    return context


# -- Options of a client


def merged(role: str, given: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the options of a client, and texts that name the options from defaults.

    `role` is the kind of client, a key of `_CONFIGS`; `given` has the arguments of the constructor.
    """
    found: dict[str, _Value] = {}
    forced: dict[str, _Value] = {}
    file = _current_file()
    layers = [] if file is None else [file.find(role)]
    layers += [each.find(role) for each in _in_force]
    for layer in layers:
        for keyword, value in layer.items():
            (forced if value.is_override else found)[keyword] = value
    options = dict(given)
    applied: dict[str, str] = {}
    taken = {
        keyword: value
        for keyword, value in found.items()
        if keyword not in given and not _is_excluded(keyword, given)
    }
    for keyword, value in {**taken, **forced}.items():
        before = f" instead of {_shown(value.option, given[keyword])}" if keyword in given else ""
        options[keyword] = value.value
        shown = _shown(value.option, value.value)
        applied[keyword] = f"{keyword}={shown} by {value.source}{before}"
    _leave_out_unused(options, applied, given)
    return options, tuple(applied.values())


def _is_excluded(keyword: str, given: Mapping[str, Any]) -> bool:
    return keyword in _EITHER and any(given.get(other) is not None for other in _EITHER)


def _leave_out_unused(
    options: dict[str, Any], applied: dict[str, str], given: Mapping[str, Any]
) -> None:
    """Remove the defaults for TLS from the options of a client that does not use TLS, and those for
    SASL from the options of a client that does not use SASL."""
    protocol = str(options.get("security_protocol", "PLAINTEXT"))
    for keyword in list(applied):
        is_unused = (keyword == "ssl_context" and "SSL" not in protocol) or (
            keyword.startswith("sasl_") and "SASL" not in protocol
        )
        if is_unused:
            del applied[keyword]
            if keyword in given:
                options[keyword] = given[keyword]
            else:
                del options[keyword]


def _shown(option: Option, value: Any) -> str:
    is_shown = option.is_shown and not getattr(option.kind, "secret", False)
    return brief(value) if is_shown else "***"
