"""Declaration, checks and conversion of options.

A configuration class declares each option once, by a field with `option(...)`: the keyword, the
accepted values, the default in public units (milliseconds), and a help text.
`Options.from_options` checks and converts keywords, and returns a frozen object; `describe` returns
the declarations, from which the documentation and `aiokafka.options` are generated.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import Parameter, Signature, signature
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

if TYPE_CHECKING:
    from typing_extensions import Self, dataclass_transform
else:

    def dataclass_transform(**_options):
        return lambda cls: cls


# The longest time in milliseconds that fits into a request, which encodes times as int32.
MOST_SENT_MS = 2**31 - 1

_LONGEST_TEXT = 2**15 - 1  # maximum bytes of a string in a request; longer values are rejected
_MOST_SHOWN = 200  # characters of a value in an error text; the rest of a longer value is left out


class Kind(Protocol):
    """The type of an option: it defines which values are accepted, and converts them."""

    @property
    def accepts(self) -> str:
        """The accepted values in words, as they follow "must be" in an error text."""

    @property
    def annotation(self) -> str:
        """The type annotation of the option, as source text."""

    def convert(self, value: Any) -> Any:
        """Return the value in internal units, or raise TypeError or ValueError."""


class Option:
    """One option: a field of a configuration class, with its public description.

    `default` is in public units (milliseconds), `converted_default` in internal units (seconds).
    `java` is the name of the option in the Java client, "" if the Java client has no such option;
    `when` says when to change the option. `is_shown` says whether the `repr` of a configuration
    contains the value; `opening` is the start of the error text for a wrong value. `help`, `java`
    and `when` are computed only when they are read, because few programs read them.
    """

    __slots__ = (
        "_annotation",
        "_help",
        "_java",
        "_when",
        "converted_default",
        "default",
        "is_shown",
        "keyword",
        "kind",
        "name",
        "opening",
    )

    def __init__(
        self,
        kind: Kind,
        keyword: str,
        default: Any,
        help: str,
        is_shown: bool,
        opening: str,
        annotation: str,
        java: str | None,
        when: str,
    ) -> None:
        self.name = keyword
        self.kind = kind
        self.keyword = keyword
        self.default = default
        self.converted_default = default if default is MISSING else kind.convert(default)
        self.is_shown = is_shown
        self.opening = opening
        self._help = help
        self._annotation = annotation
        self._java = java
        self._when = when

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def make_default(self) -> Any:
        return self.converted_default

    @property
    def accepts(self) -> str:
        return self.kind.accepts

    @property
    def annotation(self) -> str:
        return self._annotation or self.kind.annotation

    @property
    def help(self) -> str:
        return " ".join(self._help.split())

    @property
    def java(self) -> str:
        return self.keyword.replace("_", ".") if self._java is None else self._java

    @property
    def when(self) -> str:
        return " ".join(self._when.split())


class _Nested:
    """A field that holds the configuration of another class."""

    __slots__ = ("config", "name")

    is_shown = True

    def __init__(self, config: type[Options]) -> None:
        self.config = config
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def make_default(self) -> Any:
        return self.config()


class _Missing:
    def __repr__(self) -> str:
        return "<not given>"


MISSING: Any = _Missing()
"""Stands for an option that is not given, because None may be a valid value."""


class Number:
    """An option type: an integer within bounds, or None if `optional`."""

    def __init__(self, minimum: int = 0, maximum: int = 2**31 - 1, optional: bool = False) -> None:
        self.minimum = minimum
        self.maximum = maximum
        self.optional = optional

    @property
    def accepts(self) -> str:
        text = f"an integer from {self.minimum} to {self.maximum}"
        return f"{text}, or None" if self.optional else text

    @property
    def annotation(self) -> str:
        return "int | None" if self.optional else "int"

    def convert(self, value: Any) -> int | None:
        if value is None and self.optional:
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError
        if not self.minimum <= value <= self.maximum:
            raise ValueError
        return value


class Milliseconds:
    """An option type: a time in milliseconds, converted to seconds, or None if `optional`.

    If `is_sent`, the time is sent in requests, which limit it to an int32 (24 days).
    """

    def __init__(
        self, minimum: float = 0, optional: bool = False, *, is_sent: bool = False
    ) -> None:
        self.minimum = minimum
        self.maximum = MOST_SENT_MS if is_sent else sys.float_info.max
        self.optional = optional

    @property
    def accepts(self) -> str:
        text = f"a number of milliseconds, at least {self.minimum:g}"
        if self.maximum == MOST_SENT_MS:
            text += f" and at most {MOST_SENT_MS}"
        return f"{text}, or None" if self.optional else text

    @property
    def annotation(self) -> str:
        return "float | None" if self.optional else "float"

    def convert(self, value: Any) -> float | None:
        if value is None and self.optional:
            return None
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise TypeError
        if not self.minimum <= value <= self.maximum:
            raise ValueError
        return value / 1000


class Choice:
    """An option type: one of `values`, with the same type: 1.0 and True are not accepted as 1."""

    def __init__(self, values: tuple[Any, ...]) -> None:
        self.values = values

    @property
    def accepts(self) -> str:
        return "one of " + ", ".join(repr(value) for value in self.values)

    @property
    def annotation(self) -> str:
        # json.dumps() would do the same, but importing json costs every client 2 ms.
        given = ", ".join(
            f'"{value}"' if isinstance(value, str) else str(value)
            for value in self.values
            if value is not None
        )
        return f"Literal[{given}]" + " | None" * (None in self.values)

    def convert(self, value: Any) -> Any:
        for choice in self.values:
            if isinstance(value, type(choice)) and not isinstance(value, bool) and value == choice:
                return choice
        raise ValueError


class Text:
    """An option type: a string. `optional` allows None, `empty` allows "".

    If `secret`, error texts do not show the value.
    """

    def __init__(self, optional: bool = False, secret: bool = False, empty: bool = True) -> None:
        self.optional = optional
        self.secret = secret
        self.empty = empty

    @property
    def accepts(self) -> str:
        text = "a string" if self.empty else "a string that is not empty"
        return f"{text}, or None" if self.optional else text

    @property
    def annotation(self) -> str:
        return "str | None" if self.optional else "str"

    def convert(self, value: Any) -> str | None:
        if value is None and self.optional:
            return None
        if not isinstance(value, str):
            raise TypeError
        if not value and not self.empty:
            raise ValueError
        require_sendable(value)
        return value


class TextSource:
    """An option type: a string, None, or a function that returns a string (or an awaitable of
    it). The function is called each time the string is needed."""

    accepts = "a string, a function or coroutine function that gives one, or None"
    annotation = "Credential | None"

    def __init__(self, secret: bool = False) -> None:
        self.secret = secret

    def convert(self, value: Any) -> Any:
        if isinstance(value, str):
            require_unicode(value)
        elif value is not None and not callable(value):
            raise TypeError
        return value


class Flag:
    """An option type: True or False; the equal numbers 1 and 0 are converted."""

    accepts = "True or False"
    annotation = "bool"

    def convert(self, value: Any) -> bool:
        if value not in (True, False):
            raise TypeError
        return bool(value)


class Function:
    """An option type: a callable, or None if `optional`."""

    def __init__(self, optional: bool = True) -> None:
        self.optional = optional

    @property
    def accepts(self) -> str:
        return "a function or None" if self.optional else "a function"

    @property
    def annotation(self) -> str:
        return "Callable[..., Any] | None" if self.optional else "Callable[..., Any]"

    def convert(self, value: Any) -> Callable[..., Any] | None:
        if value is None and self.optional:
            return None
        if not callable(value):
            raise TypeError
        return value  # type: ignore[no-any-return]


class Serde(Function):
    """An option type: a serializer or deserializer. `method`, "serialize" or "deserialize", is the
    method of objects in kafka-python's form, which are not callable."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self._method = method

    @property
    def accepts(self) -> str:
        return f"a function or None, or an object with a method {self._method}()"

    def convert(self, value: Any) -> Any:
        return value if callable(getattr(value, self._method, None)) else super().convert(value)


class Instance:
    """An option type: an instance of `cls`, or None."""

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.accepts = f"an instance of {cls.__name__}, or None"
        self.annotation = f"{cls.__name__} | None"

    def convert(self, value: Any) -> Any:
        if value is not None and not isinstance(value, self.cls):
            raise TypeError(f"not {_kind_of(value)}")
        return value


class Instances:
    """An option type: a list or tuple of instances of the class `name`, converted to a tuple.

    The class is imported only to check elements, so that an empty list does not import its module.
    """

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name
        self.accepts = f"a list of instances of {name}"
        self.annotation = f"Sequence[{name}]"

    def convert(self, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"not {_kind_of(value)}")
        for one in value:
            if not isinstance(one, getattr(importlib.import_module(self.module), self.name)):
                raise TypeError(f"not {_kind_of(one)}")
        return tuple(value)


class Having:
    """An option type: an instance of any class with the method `method`, or None.

    Error texts do not show the value, because it may contain a secret.
    """

    secret = True

    def __init__(self, method: str, accepts: str, annotation: str) -> None:
        self.method = method
        self.accepts = accepts
        self.annotation = annotation

    def convert(self, value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, type) or not callable(getattr(value, self.method, None)):
            raise TypeError(f"not {_kind_of(value)}")
        return value


class HavingOrFunction(Having):
    """An option type: an object with the method `method`, None, or a function that returns such
    an object. The function is called each time the object is needed."""

    def convert(self, value: Any) -> Any:
        is_function = callable(value) and not isinstance(value, type)
        return value if is_function else super().convert(value)


def _kind_of(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def option(
    kind: Kind,
    keyword: str,
    default: Any,
    help: str,
    *,
    repr: bool = True,
    opening: str = "",
    annotation: str = "",
    java: str | None = None,
    when: str = "",
) -> Any:
    """Declare an option of a configuration class.

    Args:
        kind: The type of the option.
        keyword: The name of the option, as a keyword of the constructor.
        default: The default in public units, or MISSING. It is converted once, when the class is
            created.
        help: The meaning of the option, for docstrings and the documentation.
        repr: Whether the `repr` of a configuration shows the value.
        opening: The start of the error text as in aiokafka 0.14, if programs may match that text.
        annotation: The type annotation, if it is more specific than that of `kind`.
        java: The name in the Java client: by default the keyword with dots, "" if the Java client
            has no such option.
        when: When to change the option.
    """
    return Option(kind, keyword, default, help, repr, opening, annotation, java, when)


def nested(config: type[Options]) -> Any:
    """Declare a field that holds the configuration of another class."""
    return _Nested(config)


@dataclass_transform(kw_only_default=True, frozen_default=True, eq_default=False)
class Options:
    """Base class of the configuration classes. Their objects are frozen. Their fields are declared
    by `option` and `nested`, are keyword-only, and all have defaults."""

    _fields: ClassVar[dict[str, Option | _Nested]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        declared = [each for each in vars(cls).values() if isinstance(each, (Option, _Nested))]
        cls._fields = {**cls._fields, **{each.name: each for each in declared}}

    def __init__(self, **values: Any) -> None:
        for name, field in self._fields.items():
            # Write to `__dict__`, because `__setattr__` raises: the object is frozen.
            self.__dict__[name] = values.pop(name) if name in values else field.make_default()
        if values:
            raise TypeError(f"{type(self).__name__} has no field {min(values)!r}")
        self.__post_init__()

    def __post_init__(self) -> None:
        """Check rules about several fields. Called at the end of `__init__`; subclasses override
        it."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"cannot delete field {name!r}")

    def __repr__(self) -> str:
        names = [each.name for each in self._fields.values() if each.is_shown]
        shown = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
        return f"{type(self).__qualname__}({shown})"

    @classmethod
    def from_options(cls, **options: Any) -> Self:
        """Return the configuration from option keywords.

        Raises TypeError for an unknown keyword and for a value of a wrong type, and ValueError for
        other values that are not accepted. The text has the keyword, the value (unless it is
        secret), and the accepted values.
        """
        public = {name: value for name, value in options.items() if value is not MISSING}
        values: dict[str, Any] = {}
        for name, field in cls._fields.items():
            keyword = field.keyword if isinstance(field, Option) else name
            if keyword in options:
                given = options.pop(keyword)
                if isinstance(field, _Nested):
                    values[name] = given
                elif given is not MISSING:
                    values[name] = check(field.kind, keyword, given, field.opening)
        if options:
            raise unknown_option(cls.__name__, sorted(options)[0], cls.keywords())
        made = cls(**values)
        made.__dict__["_public"] = public  # the given values, for `is_given` and `as_given`
        return made

    def is_given(self, keyword: str) -> bool:
        """Return whether `from_options` was called with this option."""
        return keyword in self.__dict__.get("_public", {})

    def as_given(self, keyword: str) -> Any:
        """Return the value that `from_options` got for an option, or its default (public units)."""
        public = self.__dict__.get("_public", {})
        if keyword in public:
            return public[keyword]
        return next(each.default for each in self.describe() if each.keyword == keyword)

    @classmethod
    def describe(cls) -> list[Option]:
        """Return the options of this class in the order of their declaration."""
        return [each for each in cls._fields.values() if isinstance(each, Option)]

    @classmethod
    @functools.cache
    def keywords(cls) -> frozenset[str]:
        """Return the public keywords that `from_options` takes."""
        return frozenset(described.keyword for described in cls.describe())


# By name of an option in other clients, with underscores in place of dots: its name here.
_OTHER_NAMES = {
    "batch_size": "max_batch_size",
    "retries": "delivery_timeout_ms",
    "message_max_bytes": "max_request_size",
    "fetch_wait_max_ms": "fetch_max_wait_ms",
    "queue_buffering_max_ms": "linger_ms",
    "metadata_broker_list": "bootstrap_servers",
    "compression_codec": "compression_type",
    "sasl_mechanisms": "sasl_mechanism",
    "sasl_username": "sasl_plain_username",
    "sasl_password": "sasl_plain_password",
    "sasl_jaas_config": "sasl_plain_username and sasl_plain_password",
    "sasl_kerberos_name": "sasl_kerberos_service_name",
    "default_offset_commit_callback": "commit() of the consumer",
    "interceptor_classes": "interceptors",
}


def refuse_unknown(owner: str, given: Iterable[str], *configs: type[Options]) -> None:
    """Raise the TypeError of `unknown_option` if a name in `given` is not an option of
    `configs`. `owner` is the class whose constructor was called."""
    known = frozenset().union(*(config.keywords() for config in configs))
    for name in given:
        if name not in known:
            raise unknown_option(owner, name, known)


def unknown_option(owner: str, name: str, known: Iterable[str]) -> TypeError:
    """Return the TypeError for an unknown option. Its text suggests a similar option, if any."""
    plain = name.replace(".", "_").replace("-", "_").lower()
    names = sorted(known)
    if plain in names:
        nearest = plain
    elif plain in _OTHER_NAMES:
        nearest = _OTHER_NAMES[plain]
    elif plain.startswith("ssl_") and "ssl_context" in names:
        nearest = "ssl_context, which aiokafka.helpers.create_ssl_context() makes"
    else:
        import difflib  # imported here, because only this error text needs it

        nearest = next(iter(difflib.get_close_matches(plain, names, 1)), "")
    hint = f"; did you mean {nearest}?" if nearest else ""
    return TypeError(
        f"{owner}.__init__() got an unexpected keyword argument {name!r}: unknown option{hint}"
    )


def check(kind: Kind, keyword: str, value: Any, opening: str = "") -> Any:
    """Return the value converted by `kind`. Raises the TypeError or ValueError of `kind`, with a
    text that has the keyword and the accepted values."""
    try:
        return kind.convert(value)
    except (TypeError, ValueError) as error:
        reason = f" ({error})" if str(error) else ""
        shown = "" if getattr(kind, "secret", False) else f"={brief(value)}"
        start = f"{opening.format(value)}: " if opening else ""
        raise type(error)(f"{start}{keyword}{shown}: must be {kind.accepts}{reason}") from None


def brief(value: Any) -> str:
    """Return the `repr` of a wrong value for an error text: shortened, and without the key of an
    Event Hubs connection string."""
    try:
        text = repr(value)
    except Exception:
        # For an integer with thousands of digits, `repr` raises ValueError.
        return f"<{type(value).__name__}>"
    # Connection strings of Azure Event Hubs contain the password.
    text = re.sub(r"(SharedAccessKey=)[^;'\"]*", r"\1***", text)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def require_sendable(text: str) -> None:
    """Raise ValueError for a string that no request can contain, because it is longer than 32767
    bytes or cannot be encoded as UTF-8."""
    require_unicode(text)
    if len(text) * 4 > _LONGEST_TEXT and len(text.encode()) > _LONGEST_TEXT:
        raise ValueError(f"it has more than {_LONGEST_TEXT} bytes")


def require_unicode(text: str) -> None:
    """Raise ValueError for a string that cannot be encoded as UTF-8.

    Such a string contains lone surrogates. Python uses them to represent environment variables and
    arguments that are not UTF-8.
    """
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            wrong = text[error.start]
            raise ValueError(f"it contains {wrong!r}, which is not a valid character") from None


def join(names: Iterable[str]) -> str:
    """Return the sorted names, separated by commas."""
    return ", ".join(sorted(names))


def unsendable(text: str) -> str:
    """Return the reason why SASL cannot send a user name or password; "" if it can."""
    if "\0" in text:
        return "a zero byte, which SASL forbids"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "a lone surrogate, which UTF-8 cannot express"
    return ""


# -- Defaults of the process

DEFAULTS_VARIABLE = "AIOKAFKA_DEFAULTS"
"""The environment variable that names a file of defaults."""

_DEFAULTS = "aiokafka._config.defaults"


def apply_defaults(role: str, given: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the options of a client, and texts that name the options from defaults of the process
    with their sources.

    `role` is "producer", "consumer", "share_consumer", "admin" or "client". `given` has the
    arguments of the client's constructor.
    Raises KafkaConfigurationError if the file of defaults is not valid.
    """
    # Most programs have no defaults, and do not import the module.
    if _DEFAULTS not in sys.modules and not os.environ.get(DEFAULTS_VARIABLE):
        return dict(given), ()
    options, applied = importlib.import_module(_DEFAULTS).merged(role, given)
    return options, applied


@contextlib.contextmanager
def naming_defaults(applied: tuple[str, ...]) -> Iterator[None]:
    """Add the options from defaults to the text of a TypeError or ValueError in the block."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if not applied:
            raise
        raise type(error)(f"{error} (from defaults: {'; '.join(applied)})") from error


# -- Signatures of constructors that take `**options`

# Type checkers and editors read the options of a constructor from `aiokafka.options`, which is
# generated from the configuration classes. `inspect`, `help`, Sphinx and dependency injection read
# the signature at run time. For them, `show_options` replaces `**options` in the signature.


class _SignatureWithOptions(Signature):
    """A signature that is computed on first use, because few programs read it and a constructor has
    some 60 options. Its copies are ordinary `Signature` objects."""

    __slots__ = ("_compute", "_computed")

    def __init__(self, compute: Callable[[], Signature]) -> None:
        self._compute = compute
        self._computed: Signature | None = None

    def _full(self) -> Signature:
        if self._computed is None:
            self._computed = self._compute()
        return self._computed

    # The other methods of Signature use these two properties.

    @property
    def parameters(self) -> MappingProxyType[str, Parameter]:
        return self._full().parameters

    @property
    def return_annotation(self) -> Any:
        return self._full().return_annotation

    def replace(self, **changes: Any) -> Signature:  # type: ignore[override]
        return self._full().replace(**changes)

    __replace__ = replace  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        return self._full().__reduce__()


def show_options(
    function: Callable[..., Any], *configs: type[Options], **defaults: Callable[[], object]
) -> None:
    """Set the `__signature__` of `function`, with the options of `configs` in place of `**options`.

    `defaults` has functions by option: the result replaces the default in the configuration.
    """
    attributes = vars(function)

    def compute() -> Signature:
        # Remove this attribute first: `signature` would return it, instead of reading the function.
        attributes.pop("__signature__", None)
        plain = signature(function)
        own = [each for each in plain.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
        named = {each.name for each in own}
        listed = [
            Parameter(
                each.keyword,
                Parameter.KEYWORD_ONLY,
                default=defaults[each.keyword]() if each.keyword in defaults else each.default,
                annotation=each.annotation,
            )
            for config in configs
            for each in config.describe()
            if each.keyword not in named
        ]
        full = attributes["__signature__"] = plain.replace(parameters=[*own, *listed])
        return full

    attributes["__signature__"] = _SignatureWithOptions(compute)


# -- Options as private attributes, as in aiokafka 0.14


C = TypeVar("C")


class _AsGiven:
    """A descriptor that returns the value of an option as the constructor got it. The attribute has
    its name in aiokafka 0.14, such as ``client._ssl_context``.

    Attributes of the instance and of subclasses take precedence.
    """

    __slots__ = ("_config_of", "_keyword")

    def __init__(self, keyword: str, config_of: Callable[[object], Any]) -> None:
        self._keyword = keyword
        self._config_of = config_of

    def __get__(self, owner: object, kind: type | None = None) -> Any:
        return self if owner is None else self._config_of(owner).as_given(self._keyword)


def with_options(configs: Mapping[str, type[Options]]) -> Callable[[type[C]], type[C]]:
    """Return a class decorator that adds an `_AsGiven` attribute for each option of `configs`.

    The keys of `configs` are attribute paths from an instance to its configuration. A `__getattr__`
    would be shorter, but in CPython it makes every attribute lookup on the instances slower
    (`send` by 5 %).
    """

    def add_attributes(owner: type[C]) -> type[C]:
        for path, config in configs.items():
            for keyword in config.keywords():
                if not hasattr(owner, f"_{keyword}"):
                    setattr(owner, f"_{keyword}", _AsGiven(keyword, attrgetter(path)))
        return owner

    return add_attributes
