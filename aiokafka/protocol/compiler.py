"""Compile a message class at a version to functions that encode and decode it.

The functions are written on first use, within a fraction of a millisecond for most messages, and
cached. The build generates those of the newest versions of common messages.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from aiokafka.errors import KafkaProtocolError, UnsupportedVersionError
from aiokafka.protocol._decoder import make_decoder
from aiokafka.protocol._encoder import make_encoder
from aiokafka.protocol.schema import Message, Struct, Type, fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

M = TypeVar("M", bound=Message)

_MALFORMED = (struct.error, IndexError, UnicodeDecodeError)
_UNENCODABLE = (struct.error, TypeError, AttributeError, KeyError, ValueError, OverflowError)


class Codec(Generic[M]):
    """Encodes and decodes one version of a message. Get it from `codec`."""

    def __init__(self, cls: type[M], version: int, flexible: bool) -> None:
        self.cls = cls
        self.version = version
        self.flexible = flexible
        self._encode: Callable[[M, bytearray], list[bytes | bytearray | memoryview]] | None = None
        self._decode: Callable[[bytes | bytearray, int], tuple[M, int]] | None = None

    def encode(
        self, message: M, out: bytearray | None = None
    ) -> list[bytes | bytearray | memoryview]:
        """Encode a message as buffers; long record sets stay buffers of their own.

        Raises TypeError or ValueError, naming the field, if a value does not fit its type, and
        UnsupportedVersionError if a field is set that this version lacks.

        Args:
            message: the message; it is not changed.
            out: what comes before the message. It grows, and is the first buffer of the result.
        """
        encode = self._encode
        if encode is None:
            encode = self._encode = make_encoder(self.cls, self.version, self.flexible)
        try:
            return encode(message, bytearray() if out is None else out)
        except _UNENCODABLE as error:
            raise explain(message, self.cls, self.version, error) from error

    def encode_bytes(self, message: M) -> bytes:
        """Encode a message in one piece. Raises what `encode` raises."""
        return b"".join(self.encode(message))

    def decode(self, data: bytes | bytearray | memoryview, offset: int = 0) -> M:
        """Decode the message that fills `data` from `offset` to the end.

        Record sets are memoryviews of `data`, not copies (if `data` is a memoryview, it is copied
        once, as a whole). Unknown tagged fields are dropped. Raises KafkaProtocolError, and nothing
        else, for anything that is not exactly one message.
        """
        message, end = self.decode_prefix(data, offset)
        if end != len(data):
            raise KafkaProtocolError(
                f"{self}: {len(data) - end} bytes are left over after the message"
            )
        return message

    def decode_prefix(self, data: bytes | bytearray | memoryview, offset: int = 0) -> tuple[M, int]:
        """Decode the message that starts at `offset`; return it and the position after it.

        For data that a newer version may have extended. Raises KafkaProtocolError.
        """
        if isinstance(data, memoryview):
            data = bytes(data)
        decode = self._decode
        if decode is None:
            decode = self._decode = make_decoder(self.cls, self.version, self.flexible)
        try:
            return decode(data, offset)
        except KafkaProtocolError as error:
            raise KafkaProtocolError(f"{self}: {error.args[0]}") from None
        except _MALFORMED as error:
            raise KafkaProtocolError(f"{self}: {_describe(error, len(data))}") from error

    def __repr__(self) -> str:
        return f"{self.cls.__name__} v{self.version}"


def _describe(error: Exception, size: int) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"a string is not UTF-8 ({error.reason})"
    if isinstance(error, IndexError) and "tuple" in str(error):
        return "a boolean is neither 0 nor 1"
    return f"truncated: the message goes on beyond its {size} bytes"


_codecs: dict[tuple[type[Message], int], Codec[Message]] = {}


def codec(cls: type[M], version: int) -> Codec[M]:
    """Return the codec of a message class at a version.

    Raises UnsupportedVersionError if the class does not have the version.
    """
    known = _codecs.get((cls, version))
    if known is None:
        first, last = cls.VERSIONS
        if not first <= version <= last:
            raise UnsupportedVersionError(
                f"{cls.__name__} has versions {first} to {last}, not {version}"
            )
        flexible = cls.FLEXIBLE is not None and version >= cls.FLEXIBLE
        known = _codecs[cls, version] = Codec(cls, version, flexible)
    return known  # type: ignore[return-value]


# -- Find out why a message could not be encoded. Slow, and only called after a failure


_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "string": (str,),
    "bytes": (bytes, bytearray, memoryview),
    "records": (bytes, bytearray, memoryview),
    "uuid": (bytes,),
    "float64": (float, int),
    "array": (list, tuple),
}


def explain(message: Any, cls: type[Struct], version: int, error: Exception) -> Exception:
    """Return a TypeError or ValueError that names the first bad field, else the error itself."""
    return next(_faults(message, cls, version, cls.__name__), error)


def _faults(value: Any, cls: type[Struct], version: int, path: str) -> Iterator[Exception]:
    if not isinstance(value, cls):
        yield _wrong_type(path, cls.__name__, value)
        return
    for field in fields(cls):
        if not field.versions.has(version):
            continue
        where = f"{path}.{field.name}"
        nullable = field.nullable.has(version)
        for fault in _check(getattr(value, field.name), field.type, nullable, version, where):
            yield type(fault)(f"{where}: a bad value (not shown)") if field.secret else fault


def _check(value: Any, wire: Type, nullable: bool, version: int, path: str) -> Iterator[Exception]:
    if value is None:
        if not nullable:
            yield ValueError(f"{path} must not be None in version {version}")
    elif wire.struct is not None:
        yield from _faults(value, wire.struct, version, path)
    elif not _has_type(value, wire.kind):
        yield _wrong_type(path, wire.kind, value)
    elif wire.element is not None:
        for index, item in enumerate(value):
            yield from _check(item, wire.element, False, version, f"{path}[{index}]")
    else:
        yield from _check_range(value, wire, path)


def _has_type(value: Any, kind: str) -> bool:
    return isinstance(value, _PYTHON_TYPES.get(kind, (int,)))


def _check_range(value: Any, wire: Type, path: str) -> Iterator[Exception]:
    if wire.kind == "string":
        try:
            size = len(value.encode())
        except UnicodeEncodeError as error:
            yield ValueError(f"{path} cannot be encoded as UTF-8: {error.reason}")
        else:
            if size > 32767:
                yield ValueError(f"{path}: {size} bytes are more than a string may have (32767)")
    elif wire.kind == "uuid" and len(value) != 16:
        yield ValueError(f"{path}: a uuid has 16 bytes, not {len(value)}")
    elif wire.code and wire.kind not in ("uuid", "bool"):
        try:
            struct.pack(">" + wire.code, value)
        except (struct.error, OverflowError):
            yield ValueError(f"{path}: {value!r} is out of range for {wire.kind}")


def _wrong_type(path: str, expected: str, value: Any) -> TypeError:
    return TypeError(f"{path}: expected {expected}, got {type(value).__name__} {value!r:.100}")
