"""SASL of a fake cluster: users, mechanisms, and the login state of each connection."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from aiokafka import errors
from aiokafka.testing.actions import CloseConnectionError, check_whole
from aiokafka.testing.sasl import (
    MECHANISMS,
    Conversation,
    DelegationTokens,
    LoginRefusedError,
    ScramCredentials,
    begin,
    subject_of,
)

_HANDSHAKE, _API_VERSIONS, _AUTHENTICATE = 17, 18, 36

# Minimum seconds between two re-authentications of a connection, as in Kafka. An earlier
# SaslHandshake gets ILLEGAL_SASL_STATE.
_LEAST_INTERVAL = 1.0


class Security:
    """SASL settings of a fake cluster. Tests may change the attributes at any time.

    Args:
        users: Password of each user, for PLAIN and SCRAM; None (the default) for no users. A copy
            is kept as :attr:`users`.
        mechanisms: The mechanisms that the brokers offer; by default all supported mechanisms:
            ``"PLAIN"``, ``"SCRAM-SHA-256"``, ``"SCRAM-SHA-512"``, ``"OAUTHBEARER"``.
        session_lifetime_ms: Milliseconds after which the client must authenticate again on the
            open connection (KIP-368); 0 (the default) for no limit. An earlier expiry of the
            client's token takes precedence.
        accept_token: For OAUTHBEARER: a function that returns the user of a token, None to reject
            the token. The default returns the subject of any unexpired JSON web token, without
            verifying the signature.
        iterations: Iterations of the SCRAM password hash.

    Raises:
        ValueError: unknown mechanism, a negative `session_lifetime_ms`, or `iterations` below 1.
        TypeError: an argument has the wrong type.

    Example::

        security = Security(users={"alice": "secret"}, session_lifetime_ms=5000)
        async with FakeCluster(security=security) as cluster:
            ...                                   # the program under test logs in
            security.users["alice"] = "changed"   # its next login fails
            cluster.drop_connections()
    """

    def __init__(
        self,
        users: Mapping[str, str] | None = None,
        *,
        mechanisms: Sequence[str] = MECHANISMS,
        session_lifetime_ms: int = 0,
        accept_token: Callable[[str], str | None] = subject_of,
        iterations: int = 4096,
    ) -> None:
        _check_users(users or {})
        if isinstance(mechanisms, str):
            raise TypeError(f"mechanisms must be a list of names, such as [{mechanisms!r}]")
        unknown = sorted(set(mechanisms) - set(MECHANISMS))
        if unknown:
            raise ValueError(f"unknown mechanisms {unknown}; known are {', '.join(MECHANISMS)}")
        check_whole("session_lifetime_ms", session_lifetime_ms, 0)
        check_whole("iterations", iterations, 1)
        if not callable(accept_token):
            raise TypeError(f"accept_token must be a function, not {accept_token!r}")
        #: Password of each user.
        self.users: dict[str, str] = dict(users or {})
        self.mechanisms = tuple(mechanisms)
        self.session_lifetime_ms = session_lifetime_ms
        self.accept_token = accept_token
        self.iterations = iterations
        #: Delegation tokens, with which clients log in by SCRAM as the owners (KIP-48).
        self.tokens = DelegationTokens()
        #: Credentials of SCRAM: the passwords, and credentials set by clients (KIP-554).
        self.credentials = ScramCredentials(self.users, self.mechanisms, iterations)
        #: Number of successful first logins of connections.
        self.logins = 0
        #: Number of successful re-authentications (KIP-368).
        self.renewals = 0
        #: Number of failed logins.
        self.refusals = 0


def _check_users(users: object) -> None:
    if not isinstance(users, Mapping):
        raise TypeError(f"users must be a dict of passwords, not {type(users).__name__}")
    for user, password in users.items():
        if not isinstance(user, str) or not isinstance(password, str):
            raise TypeError(f"users: {user!r} must be a string, with a string as password")


class Verdict(NamedTuple):
    """The response to one SASL token."""

    errno: int
    message: str | None = None
    challenge: bytes = b""
    lifetime_ms: int = 0


class State(enum.Enum):
    """Login state of a connection."""

    UNKNOWN = "not logged in"
    SPEAKING = "a login is in progress"
    OPEN = "logged in"
    REFUSED = "to be closed after the response"


_S = State
_TRANSITIONS: dict[State, set[State]] = {
    _S.UNKNOWN: {_S.SPEAKING, _S.REFUSED},
    _S.SPEAKING: {_S.OPEN, _S.REFUSED},
    _S.OPEN: {_S.SPEAKING, _S.REFUSED},
    _S.REFUSED: set(),
}


class Session:
    """The SASL state of one connection: its login and re-authentications.

    Owns: the login state, the user, and the end of the session.
    """

    def __init__(self, security: Security) -> None:
        self.state = State.UNKNOWN
        #: The authenticated user; "" before the login.
        self.user = ""
        #: Whether the user logged in with a delegation token.
        self.is_by_token = False
        #: Whether the client sends SASL tokens without request headers (SaslHandshake v0).
        self.takes_raw_tokens = False
        self._security = security
        self._loop = asyncio.get_running_loop()
        self._mechanism = ""
        self._conversation: Conversation | None = None
        self._ends: float | None = None
        self._renewed_at: float | None = None

    def check(self, api_key: int) -> None:
        """Check whether the login state of the connection allows a request of an API.

        Raises:
            CloseConnectionError: the request is not allowed, so Kafka closes the connection.
        """
        if self.state is State.OPEN:
            if self._ends is None or self._loop.time() < self._ends or api_key == _HANDSHAKE:
                return
        elif self.state is State.SPEAKING:
            if api_key == _AUTHENTICATE:
                return
        elif api_key in (_API_VERSIONS, _HANDSHAKE):
            return
        raise CloseConnectionError

    def shake_hands(self, mechanism: str, version: int) -> int:
        """Handle a SaslHandshake request: begin a login; return the error code, 0 for success.

        Raises:
            CloseConnectionError: the client re-authenticates with another mechanism.
        """
        now = self._loop.time()
        if self.state is State.OPEN:
            if self._ends is None or (
                self._renewed_at is not None and now < self._renewed_at + _LEAST_INTERVAL
            ):
                return errors.IllegalSaslStateError.errno
            if mechanism != self._mechanism:
                raise CloseConnectionError
            self._renewed_at = now
        if mechanism not in self._security.mechanisms:
            self._security.refusals += 1
            self._transition(State.REFUSED)
            return errors.UnsupportedSaslMechanismError.errno
        self._mechanism = mechanism
        self._conversation = begin(mechanism, self._security)
        self.takes_raw_tokens = version == 0
        self._transition(State.SPEAKING)
        return 0

    def authenticate(self, token: bytes) -> Verdict:
        """Handle one SASL token of the client; return the response."""
        conversation = self._conversation
        if self.state is not State.SPEAKING or conversation is None:
            message = "SaslAuthenticate request received after successful authentication"
            return Verdict(errors.IllegalSaslStateError.errno, message)
        try:
            challenge = conversation.step(token)
            if self.user and conversation.user not in ("", self.user):
                raise LoginRefusedError("Cannot change principals during re-authentication")
        except LoginRefusedError as refusal:
            self._security.refusals += 1
            self._transition(State.REFUSED)
            return Verdict(errors.SaslAuthenticationFailed.errno, str(refusal))
        if not conversation.user:
            return Verdict(0, challenge=challenge)
        return Verdict(0, challenge=challenge, lifetime_ms=self._accept(conversation))

    def _accept(self, conversation: Conversation) -> int:
        """Begin the session; return its lifetime in milliseconds, 0 for no limit."""
        if self.user:
            self._security.renewals += 1
        else:
            self._security.logins += 1
        self.user = conversation.user
        self.is_by_token = conversation.is_by_token
        self.takes_raw_tokens = False
        self._transition(State.OPEN)
        limits = [conversation.lifetime, self._security.session_lifetime_ms / 1000 or None]
        lifetime = min((limit for limit in limits if limit is not None), default=None)
        self._ends = None if lifetime is None else self._loop.time() + lifetime
        return 0 if lifetime is None else max(1, int(lifetime * 1000))

    def _transition(self, new: State) -> None:
        if new not in _TRANSITIONS[self.state]:
            raise RuntimeError(f"a connection that is {self.state.value} cannot be {new.value}")
        self.state = new
