"""Options for the encryption and authentication of connections."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from aiokafka._config.options import (
    MISSING,
    Choice,
    Flag,
    Having,
    HavingOrFunction,
    Options,
    Text,
    TextSource,
    option,
    unsendable,
)

if TYPE_CHECKING:
    import ssl

    from typing_extensions import Self

    from aiokafka.abc import AbstractSaslMechanism, AbstractTokenProvider

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SASL_MECHANISMS = ("PLAIN", "GSSAPI", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

MADE_FOR_SERVERS = (
    "made for a server (PROTOCOL_TLS_SERVER or Purpose.CLIENT_AUTH); "
    "aiokafka.helpers.create_ssl_context() makes one for a client"
)
"""The end of the error text for an `ssl_context` that was made for a server."""

Credential = str | Callable[[], str | Awaitable[str]]
"""A string, or a function (or coroutine function) that returns the string. The function is called
for each authentication."""

if TYPE_CHECKING:
    TlsSource = ssl.SSLContext | Callable[[], ssl.SSLContext | Awaitable[ssl.SSLContext]]


class _SaslMechanism(Choice):
    """An option type: the name of a SASL mechanism, or an AbstractSaslMechanism."""

    @property
    def accepts(self) -> str:
        return f"{super().accepts}, or an instance of aiokafka.abc.AbstractSaslMechanism"

    annotation = "SaslMechanism"

    def convert(self, value: Any) -> Any:
        if isinstance(value, (str, type)) or not hasattr(value, "exchange"):
            return super().convert(value)
        name = getattr(value, "name", None)
        if not isinstance(name, str) or not name:
            raise TypeError("its attribute `name` must be a non-empty string")
        return value


class SecurityConfig(Options):
    """Options for the encryption and authentication of connections."""

    protocol: str = option(
        Choice(SECURITY_PROTOCOLS),
        "security_protocol",
        "PLAINTEXT",
        "Protocol of the brokers' listener: with or without TLS, with or without SASL.",
        opening="`security_protocol` should be SSL or PLAINTEXT",
        when="To the protocol of the listener: in production SASL_SSL or SSL.",
    )
    ssl_context: TlsSource | None = option(
        HavingOrFunction(
            "wrap_bio",
            "an ssl.SSLContext (see aiokafka.helpers.create_ssl_context), a function that makes "
            "one for each connection, or None",
            "TlsSource | None",
        ),
        "ssl_context",
        None,
        """TLS settings, or a function that returns them for each new connection; required for SSL
        and SASL_SSL.""",
        repr=False,
        java="ssl.*",
        when="With SSL and SASL_SSL, always.",
    )
    sasl_mechanism: str | AbstractSaslMechanism = option(
        _SaslMechanism(SASL_MECHANISMS),
        "sasl_mechanism",
        "PLAIN",
        """SASL mechanism, for SASL_PLAINTEXT and SASL_SSL: a name, or an
        aiokafka.abc.AbstractSaslMechanism for a mechanism of the application.""",
        opening="only `PLAIN`, `GSSAPI`, `SCRAM-SHA-256`, `SCRAM-SHA-512` and `OAUTHBEARER`",
        when="To a mechanism that the brokers offer.",
    )
    sasl_plain_username: Credential | None = option(
        TextSource(),
        "sasl_plain_username",
        None,
        "User name for PLAIN and SCRAM, or a function that returns it for each authentication.",
        repr=False,
        java="sasl.jaas.config",
        when="With PLAIN and SCRAM, always.",
    )
    sasl_plain_password: Credential | None = option(
        TextSource(secret=True),
        "sasl_plain_password",
        None,
        "Password for PLAIN and SCRAM, or a function that returns it for each authentication.",
        repr=False,
        java="sasl.jaas.config",
        when="""With PLAIN and SCRAM, always. A function can read it from a file that is updated
        from time to time.""",
    )
    sasl_scram_tokenauth: bool = option(
        Flag(),
        "sasl_scram_tokenauth",
        False,
        """With SCRAM: authenticate by a delegation token. The user name is the id of the token,
        the password its HMAC in base64 (KIP-48).""",
        java="tokenauth in sasl.jaas.config",
        when="To True to authenticate by a delegation token.",
    )
    sasl_kerberos_service_name: str = option(
        Text(),
        "sasl_kerberos_service_name",
        "kafka",
        "Service name of the brokers for GSSAPI: the first part of their principals.",
        when="If the principal of the brokers does not begin with kafka/.",
    )
    sasl_kerberos_domain_name: str | None = option(
        Text(optional=True),
        "sasl_kerberos_domain_name",
        None,
        """Host name in the principal of the broker, for GSSAPI; by default the host name of the
        connection.""",
        java="",
        when="If the host name of the connection differs from that in the broker's principal.",
    )
    sasl_kerberos_principal: str | None = option(
        Text(optional=True, empty=False),
        "sasl_kerberos_principal",
        None,
        """Principal of the client for GSSAPI; by default the principal of the ticket cache, or the
        first principal of the keytab.""",
        java="principal in sasl.jaas.config",
        when="If the cache or the keytab has several principals.",
    )
    sasl_kerberos_keytab: str | None = option(
        Text(optional=True, empty=False),
        "sasl_kerberos_keytab",
        None,
        """Path of a keytab with which tickets are obtained, for GSSAPI; by default the environment
        variables KRB5CCNAME and KRB5_CLIENT_KTNAME apply.""",
        java="keyTab in sasl.jaas.config",
        when="In services, where nobody runs kinit.",
    )
    sasl_oauth_token_provider: AbstractTokenProvider | None = option(
        Having(
            "token",
            "an instance of aiokafka.abc.AbstractTokenProvider or None",
            "AbstractTokenProvider | None",
        ),
        "sasl_oauth_token_provider",
        None,
        "Source of tokens for OAUTHBEARER.",
        repr=False,
        java="sasl.login.callback.handler.class",
        when="With OAUTHBEARER, always.",
    )

    @classmethod
    def from_options(cls, **options: Any) -> Self:
        """Return the configuration from option keywords.

        `sasl_mechanism` and `sasl_kerberos_service_name` may be None or "" if they are not used;
        then they get their defaults.
        """
        absent: tuple[Any, ...] = (None, "")
        if "SASL" not in str(options.get("security_protocol")):
            if options.get("sasl_mechanism", MISSING) in absent:
                del options["sasl_mechanism"]
        elif options.get("sasl_mechanism") == "GSSAPI":
            absent = (None,)
        if options.get("sasl_kerberos_service_name", MISSING) in absent:
            del options["sasl_kerberos_service_name"]
        return super().from_options(**options)

    def __post_init__(self) -> None:
        if self.uses_tls:
            self._check_tls()
        elif self.ssl_context is not None:
            self._warn("ssl_context", "SSL or SASL_SSL")
        if self.uses_sasl:
            self._check_sasl()
        elif self.sasl_plain_password is not None:
            self._warn("sasl_plain_password", "SASL_SSL or SASL_PLAINTEXT")
        elif self.sasl_oauth_token_provider is not None:
            self._warn("sasl_oauth_token_provider", "SASL_SSL or SASL_PLAINTEXT")

    def _check_tls(self) -> None:
        if self.ssl_context is None:
            raise ValueError(
                "`ssl_context` is mandatory if security_protocol=='SSL': "
                f"security_protocol={self.protocol!r} needs ssl_context; "
                "aiokafka.helpers.create_ssl_context() makes one"
            )
        if is_for_servers(self.ssl_context):
            raise ValueError(f"ssl_context: {MADE_FOR_SERVERS}")

    def _check_sasl(self) -> None:
        mechanism = self.sasl_mechanism
        is_scram = isinstance(mechanism, str) and mechanism.startswith("SCRAM-")
        if self.sasl_scram_tokenauth and not is_scram:
            raise ValueError(
                "sasl_scram_tokenauth: delegation tokens log in by SCRAM; set "
                "sasl_mechanism='SCRAM-SHA-256' or 'SCRAM-SHA-512'"
            )
        if not isinstance(mechanism, str):
            return
        if mechanism == "OAUTHBEARER":
            if self.sasl_oauth_token_provider is None:
                raise ValueError("sasl_mechanism='OAUTHBEARER' needs sasl_oauth_token_provider")
        elif mechanism == "GSSAPI":
            for keyword in ("sasl_kerberos_service_name", "sasl_kerberos_domain_name"):
                if getattr(self, keyword) == "":
                    raise ValueError(f"{keyword}: must not be empty with sasl_mechanism='GSSAPI'")
        else:
            self._check_user()

    def _check_user(self) -> None:
        mechanism = self.sasl_mechanism
        if self.sasl_plain_username is None or self.sasl_plain_password is None:
            hint = ""
            if self.sasl_oauth_token_provider is not None:
                hint = "; for sasl_oauth_token_provider set sasl_mechanism='OAUTHBEARER'"
            raise ValueError(
                "sasl_plain_username and sasl_plain_password required for "
                f"{mechanism} sasl: sasl_mechanism={mechanism!r} needs both{hint}"
            )
        for keyword in ("sasl_plain_username", "sasl_plain_password"):
            value = getattr(self, keyword)
            if value == "":
                raise ValueError(f"{keyword}: must not be empty with sasl_mechanism={mechanism!r}")
            if isinstance(value, str) and (reason := unsendable(value)):
                raise ValueError(f"{keyword}: must not have {reason}")

    def _warn(self, what: str, protocols: str) -> None:
        # Warn instead of raising an error: a program may pass the same TLS and SASL options to all
        # clients, and select listeners without TLS or SASL by `security_protocol`.
        warnings.warn(
            f"{what} has no effect with security_protocol={self.protocol!r}; it needs {protocols}",
            UserWarning,
            stacklevel=_level_of_caller(),
        )

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether connections are authenticated by SASL."""
        return self.protocol.startswith("SASL")

    @property
    def shows_password(self) -> bool:
        """Whether the password is sent without encryption: by PLAIN without TLS."""
        return self.protocol == "SASL_PLAINTEXT" and self.sasl_mechanism == "PLAIN"


def is_for_servers(context: object) -> bool:
    """Return whether the TLS context `context` was made for a server, so that clients cannot use
    it."""
    return getattr(getattr(context, "protocol", None), "name", "") == "PROTOCOL_TLS_SERVER"


def _level_of_caller() -> int:
    """Return the `stacklevel` with which a warning shows the first frame outside this package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("aiokafka"):
        frame, level = frame.f_back, level + 1
    return level
