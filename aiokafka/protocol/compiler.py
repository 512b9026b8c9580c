"""Encoders and decoders of message classes, one pair per version.

The build generates the pairs for common messages, in the versions that the newest brokers use
(`tools/generate_codecs.py`). `_codegen` writes all other pairs on first use, mostly within a
fraction of a millisecond.
"""

from __future__ import annotations

import struct
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from aiokafka.errors import KafkaProtocolError, UnsupportedVersionError
from aiokafka.protocol.schema import Message, Struct, Type, fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

M = TypeVar("M", bound=Message)

# The APIs with generated codecs, and for each API the module in `_generated`, which is named after
# the role of the client.
GENERATED = {
    **dict.fromkeys(("ApiVersions", "Metadata"), "client"),
    **dict.fromkeys(("InitProducerId", "Produce"), "producer"),
    **dict.fromkeys(("Fetch", "ListOffsets"), "consumer"),
    **dict.fromkeys(("FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat"), "group"),
    **dict.fromkeys(("LeaveGroup", "OffsetFetch"), "group"),
    "OffsetCommit": "commits",
    "ConsumerGroupHeartbeat": "group",
    **dict.fromkeys(("AddOffsetsToTxn", "AddPartitionsToTxn"), "transactions"),
    **dict.fromkeys(("EndTxn", "TxnOffsetCommit"), "transactions"),
}

# The versions of generated codecs, for APIs that need other versions than the newest one:
# - Members of the classic protocol commit and fetch offsets by topic name, in versions up to 9.
# - Brokers offer version 6 of InitProducerId only as an unstable version, for two-phase commit
#   (KIP-939).
# - If transaction.version is 1, producers use the versions before KIP-890.
# - Only brokers send AddPartitionsToTxn in later versions than 3.
_VERSIONS = {
    "InitProducerId": (5,),
    "OffsetCommit": (9, 10),
    "OffsetFetch": (9, 10),
    "AddPartitionsToTxn": (3,),
    "EndTxn": (4, 5),
    "TxnOffsetCommit": (4, 5, 6),
}

MALFORMED = (KafkaProtocolError, struct.error, IndexError, UnicodeDecodeError)
"""Errors that decoders raise for malformed bytes; `Codec.malformed` adds the message's name."""

UNENCODABLE = (struct.error, TypeError, AttributeError, KeyError, ValueError, OverflowError)
"""Errors that encoders raise for values that do not fit their types; `explain` finds the field."""


class Codec(Generic[M]):
    """Encodes and decodes one version of a message class. Created by `codec`."""

    def __init__(self, cls: type[M], version: int, flexible: bool) -> None:
        self.cls = cls
        self.version = version
        self.flexible = flexible
        self._encode: Callable[[M, bytearray], list[bytes | bytearray | memoryview]] | None = None
        self._decode: Callable[[bytes | bytearray, int], tuple[M, int]] | None = None

    def encoder(self) -> Callable[[M, bytearray], list[bytes | bytearray | memoryview]]:
        """Return the function that `encode` calls; the function raises errors of UNENCODABLE."""
        if self._encode is None:
            self._encode = self._function("encode")
        return self._encode

    def decoder(self) -> Callable[[bytes | bytearray, int], tuple[M, int]]:
        """Return the function that `decode` calls; the function raises errors of MALFORMED."""
        if self._decode is None:
            self._decode = self._function("decode")
        return self._decode

    def encode(
        self, message: M, out: bytearray | None = None
    ) -> list[bytes | bytearray | memoryview]:
        """Encode a message as a list of buffers. Long record sets are not copied: they are separate
        buffers in the list.

        Raises TypeError or ValueError, with the name of the field, if a value does not fit its
        type; UnsupportedVersionError if a field is set that this version lacks, unless it is
        ignorable.

        Args:
            message: The message, which is not changed.
            out: The bytes before the message. The message is appended to `out`, which is the first
                buffer of the result.
        """
        encode = self.encoder()
        try:
            return encode(message, bytearray() if out is None else out)
        except UNENCODABLE as error:
            raise explain(message, self.cls, self.version, error) from error

    def encode_bytes(self, message: M) -> bytes:
        """Encode a message to one bytes object. Raises the errors of `encode`."""
        return b"".join(self.encode(message))

    def decode(self, data: bytes | bytearray | memoryview, offset: int = 0) -> M:
        """Decode the message that fills `data` from `offset` to the end.

        Record sets are memoryviews of `data` (of a copy if `data` is a memoryview). Unknown tagged
        fields are dropped. Raises KafkaProtocolError, and no other error, if the bytes are not
        exactly one message.
        """
        message, end = self.decode_prefix(data, offset)
        if end != len(data):
            raise KafkaProtocolError(
                f"{self}: {len(data) - end} bytes are left over after the message"
            )
        return message

    def decode_prefix(self, data: bytes | bytearray | memoryview, offset: int = 0) -> tuple[M, int]:
        """Decode the message that starts at `offset`; return it and the position after it.

        Ignores bytes after the message: a newer version may have appended fields. Raises
        KafkaProtocolError for malformed bytes.
        """
        if isinstance(data, memoryview):
            data = bytes(data)
        decode = self.decoder()
        try:
            return decode(data, offset)
        except MALFORMED as error:
            raise self.malformed(error, len(data)) from error

    def malformed(self, error: Exception, size: int) -> KafkaProtocolError:
        """Return the KafkaProtocolError for `error`, which the decoder raised for a buffer of
        `size` bytes."""
        return KafkaProtocolError(f"{self}: {_describe(error, size)}")

    def _function(self, kind: str) -> Callable[..., Any]:
        """Return the encoder or decoder: the function that the build has generated, or else a
        function that `_codegen` compiles now."""
        name = f"{kind}_{self.cls.__name__}_v{self.version}"
        built = generated(name, self.cls, self.version)
        if built is None:
            from aiokafka.protocol import _codegen  # not needed with a current broker

            make = _codegen.make_encoder if kind == "encode" else _codegen.make_decoder
            built = make(name, self.cls, self.version, self.flexible)
        return built

    def __repr__(self) -> str:
        return f"{self.cls.__name__} v{self.version}"


def _describe(error: Exception, size: int) -> str:
    if isinstance(error, KafkaProtocolError):
        return str(error.args[0])
    if isinstance(error, UnicodeDecodeError):
        return f"a string is not UTF-8 ({error.reason})"
    if isinstance(error, IndexError) and "tuple" in str(error):
        return "a boolean is neither 0 nor 1"
    return f"truncated: the message goes on beyond its {size} bytes"


def generated_versions(api: str, cls: type[Message]) -> tuple[int, ...]:
    """Return the versions of the request or response `cls` that the build generates codecs for."""
    return _VERSIONS.get(api) or (cls.VERSIONS[1],)


def generated(name: str, cls: type[Message], version: int) -> Callable[..., Any] | None:
    """Return the function `name` that the build has generated, None if there is none.

    Without generated functions, compiling would take much of the time from the start of a client to
    its first record.
    """
    api = cls.__name__.removesuffix("Request").removesuffix("Response")
    role = GENERATED.get(api)
    is_message = cls.__module__.startswith("aiokafka.protocol.messages.")
    if role is None or not is_message or version not in generated_versions(api, cls):
        return None
    try:
        return getattr(import_module(f"aiokafka.protocol._generated.{role}"), name, None)
    except ModuleNotFoundError:
        # The modules are missing in a checkout without a build, and in a frozen program, which has
        # no modules that are imported by a computed name.
        return None


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


# -- Explain why a message could not be encoded (slow, only after a failure)


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
    """Return a TypeError or ValueError whose text has the name of the first invalid field; `error`
    if no field is invalid."""
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
