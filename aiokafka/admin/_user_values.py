"""SCRAM credentials: what brokers tell of them, and what is sent to set them."""

from __future__ import annotations

from dataclasses import dataclass, field

from aiokafka.admin._values import Value
from aiokafka.admin.enums import ScramMechanism

__all__ = ["NewScramCredential", "ScramCredential"]

# Brokers of Kafka accept 4096 to 16384, others more; more than a million keeps a thread busy for
# seconds, and our own clients refuse to log in with it.
_LEAST_ITERATIONS = 4096
_MOST_ITERATIONS = 1_000_000


@dataclass(frozen=True)
class ScramCredential(Value):
    """What brokers tell of a credential. The password cannot be read back."""

    mechanism: ScramMechanism
    iterations: int
    """How often the password is hashed."""


@dataclass(frozen=True)
class NewScramCredential:
    """A password of a user for one mechanism. The password never leaves this process: brokers get
    a salted hash of it.

    Raises TypeError and ValueError for what cannot be one.
    """

    user: str
    password: str = field(repr=False)
    mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_256
    iterations: int = 8192
    """How often the password is hashed: Kafka accepts 4096 to 16384."""

    salt: bytes | None = field(default=None, repr=False)
    """Bytes that are mixed in; by default random ones."""

    def __post_init__(self) -> None:
        check_user("user", self.user)
        if not isinstance(self.password, str):
            raise TypeError("password: must be a str")
        if not self.password:
            raise ValueError("password: must not be empty")
        object.__setattr__(self, "mechanism", as_mechanism(self.mechanism))
        if not _LEAST_ITERATIONS <= self.iterations <= _MOST_ITERATIONS:
            raise ValueError(
                f"iterations={self.iterations!r}: "
                f"must be {_LEAST_ITERATIONS} to {_MOST_ITERATIONS}; Kafka accepts up to 16384"
            )
        if self.salt is not None and not self.salt:
            raise ValueError("salt: must not be empty")


def check_user(argument: str, user: object) -> str:
    """Return a user name; raise TypeError or ValueError for what is none."""
    if not isinstance(user, str):
        raise TypeError(f"{argument}: must be a str, not {user!r}")
    if not user:
        raise ValueError(f"{argument}: must not be empty")
    return user


def as_mechanism(mechanism: object) -> ScramMechanism:
    """Return the mechanism for itself or for a name such as "SCRAM-SHA-256"."""
    if isinstance(mechanism, str):
        found = ScramMechanism.__members__.get(mechanism.replace("-", "_"))
    else:
        found = mechanism if isinstance(mechanism, ScramMechanism) else None
    if not found:
        raise ValueError(f"mechanism={mechanism!r}: must be 'SCRAM-SHA-256' or 'SCRAM-SHA-512'")
    return found
