"""Properties files, and the settings of Java's clients and of librdkafka for connections.

`parse_jaas` reads `sasl.jaas.config` as Java does. The form is `module flag key=value ...;`. Tokens
are those of Java's StreamTokenizer: words of letters, digits and `._-$`; strings in single or
double quotes, with escapes; and single other characters. Comments begin with `//`, `/*` or `/`.
Error texts show neither the configuration nor unknown words in it, because these may be parts of a
password.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

__all__ = [
    "HANDLERS",
    "IDLE",
    "JAAS",
    "KERBEROS",
    "LOGIN_PREFIXES",
    "MILLISECONDS",
    "OAUTH",
    "TLS",
    "Login",
    "LoginModule",
    "checks_names",
    "decode",
    "is_of_security",
    "login_options",
    "parse",
    "parse_jaas",
    "read_login",
    "tls_arguments",
    "tls_versions",
    "token_path",
]

MILLISECONDS = (
    "connections.max.idle.ms",
    "metadata.max.age.ms",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "request.timeout.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms",
)
"""Settings in milliseconds that all kinds of clients have. The options of this package have the
same names with underscores instead of dots."""

KERBEROS = (
    "sasl.kerberos.keytab",
    "sasl.kerberos.principal",
    "sasl.kerberos.service.name",
)
"""Settings of GSSAPI. The options of this package have the same names with underscores instead of
dots."""

TLS = {
    "ssl.ca.location": "cafile",
    "ssl.ca.pem": "cadata",
    "ssl.certificate.location": "certfile",
    "ssl.certificate.pem": "certdata",
    "ssl.crl.location": "crlfile",
    "ssl.key.location": "keyfile",
    "ssl.key.password": "password",
    "ssl.key.pem": "keydata",
    "ssl.keystore.certificate.chain": "certdata",
    "ssl.keystore.key": "keydata",
    "ssl.truststore.certificates": "cadata",
}
"""For each setting, the argument of `create_ssl_context()`: a file name, or PEM text (KIP-651)."""

OAUTH = {
    "sasl.oauthbearer.token.endpoint.url": "token_endpoint_url",
    "sasl.oauthbearer.client.credentials.client.id": "client_id",
    "sasl.oauthbearer.client.credentials.client.secret": "client_secret",
    "sasl.oauthbearer.client.id": "client_id",
    "sasl.oauthbearer.client.secret": "client_secret",
    "sasl.oauthbearer.scope": "scope",
}
"""For each setting, the argument of `ClientCredentialsTokenProvider`."""

HANDLERS = (
    "OAuthBearerLoginCallbackHandler",
    "OAuthBearerSaslClientCallbackHandler",
    "IAMClientCallbackHandler",
)
"""Java's callback handlers whose logins this package supports."""

IDLE = frozenset(
    {
        *("metadata.max.idle.ms", "retries", "sasl.kerberos.kinit.cmd", "security.providers"),
        *("sasl.kerberos.min.time.before.relogin", "sasl.login.connect.timeout.ms"),
        *("sasl.login.read.timeout.ms", "session.timeout.ms", "ssl.keymanager.algorithm"),
        *("ssl.keystore.password", "ssl.protocol", "ssl.provider", "ssl.truststore.password"),
        *("ssl.secure.random.implementation", "ssl.trustmanager.algorithm"),
    }
)
"""Settings of Java clients that are accepted without effect."""

LOGIN_PREFIXES = (
    "sasl.kerberos.ticket.renew.",
    "sasl.login.refresh.",
    "sasl.login.retry.",
    "sasl.oauthbearer.clock.",
    "sasl.oauthbearer.expected.",
    "sasl.oauthbearer.jwks.",
    "sasl.oauthbearer.scope.claim.",
    "sasl.oauthbearer.sub.claim.",
)
"""Prefixes of login settings of Java's client that have no counterpart in this package."""

# For Java's StreamTokenizer a single slash begins a comment. It skips the next character without a
# check: if this character is a newline (LF), the next line belongs to the comment, too.
_SKIP = re.compile(r"(?:[\x00-\x20]+|/\*.*?(?:\*/|\Z)|//[^\r\n]*|/.?[^\r\n]*)+", re.DOTALL)
# For Java's StreamTokenizer a digit, a dot or a minus begins a number, so no word begins with these
# characters.
# The characters from \xa0 on are written as a negation: that range would take 10 ms to compile.
_WORD = re.compile(r"(?:[A-Za-z_$]|[^\x00-\x9f])(?:[A-Za-z0-9_.\-$]|[^\x00-\x9f])*")
_QUOTED = re.compile(
    r"\"((?:[^\"\\\r\n]|\\.)*)(?:\"|(?=[\r\n])|\Z)|'((?:[^'\\\r\n]|\\.)*)(?:'|(?=[\r\n])|\Z)",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_CONTROLS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS = ("required", "requisite", "sufficient", "optional")
_FORM = 'must be as in Java: a login module, "required", key="value" pairs and a semicolon'


_PASSWORD_OPTIONS = ("username", "password")
_OAUTH_OPTIONS = {"clientId": "client_id", "clientSecret": "client_secret", "scope": "scope"}
_KERBEROS_OPTIONS = {
    "keyTab": "keytab",
    "principal": "principal",
    "serviceName": "service_name",
}
_KERBEROS_FLAGS = ("useKeyTab", "useTicketCache")
# Options of Java's Kerberos module that this package ignores: they do not affect the identity of
# the client.
_KERBEROS_IDLE = frozenset(
    {
        *("storeKey", "doNotPrompt", "debug", "refreshKrb5Config", "renewTGT", "isInitiator"),
        *("useFirstPass", "tryFirstPass", "storePass", "clearPass"),
    }
)
_NAMES = frozenset(
    {
        *_PASSWORD_OPTIONS,
        "tokenauth",
        *_OAUTH_OPTIONS,
        *_KERBEROS_OPTIONS,
        *_KERBEROS_FLAGS,
        *_KERBEROS_IDLE,
        "awsProfileName",
    }
)


class LoginModule(NamedTuple):
    """The login module of a JAAS configuration, with its options."""

    name: str
    """The name of the class, without the Java package: some libraries relocate the classes."""

    options: dict[str, str]


class Login(NamedTuple):
    """The credentials that a login module's options contain."""

    mechanism: str
    """The mechanism; "" if the module supports several, of which `sasl.mechanism` selects one."""

    options: dict[str, Any]
    """PLAIN and SCRAM: `username`, `password`, `tokenauth`. OAUTHBEARER: `client_id`,
    `client_secret`, `scope`, `extensions`. GSSAPI: `keytab`, `principal`, `service_name`. AWS IAM:
    `profile`."""


class _Token(NamedTuple):
    text: str
    is_text: bool
    """Whether the token is a word or a string, not a single character such as `=`."""


def parse_jaas(text: str) -> LoginModule:
    """Return the login module in `text`. Raises ValueError unless `text` has exactly one, in the
    form `module flag key=value ...;`."""
    tokens = _tokens(text)
    name, flag = _text(tokens, 0, "a login module"), _text(tokens, 1, "a control flag")
    if flag.lower() not in _FLAGS:
        raise ValueError(f"{_FORM}; after the login module, expected one of {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    at = 2
    while at < len(tokens) and tokens[at] != _Token(";", False):
        key = _text(tokens, at, "a key")
        if at + 1 >= len(tokens) or tokens[at + 1] != _Token("=", False):
            raise ValueError(f"{_FORM}; there is no = after the key {_shown(key, options)}")
        what = f"a value of {_shown(key, options)}, in quotes if it is not a word,"
        options[key] = _text(tokens, at + 2, what)
        at += 3
    if at >= len(tokens):
        raise ValueError(f"{_FORM}; the semicolon at the end is missing")
    if at + 1 < len(tokens):
        raise ValueError(f"{_FORM}; there is more than one login module")
    return LoginModule(name.rpartition(".")[2], options)


def _shown(key: str, before: Mapping[str, str]) -> str:
    return key if key in _NAMES else f"number {len(before) + 1}"


def _text(tokens: list[_Token], at: int, what: str) -> str:
    if at >= len(tokens) or not tokens[at].is_text:
        raise ValueError(f"{_FORM}; {what} is missing")
    return tokens[at].text


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while at < len(text):
        if skipped := _SKIP.match(text, at):
            at = skipped.end()
        elif word := _WORD.match(text, at):
            found.append(_Token(word[0], True))
            at = word.end()
        elif quoted := _QUOTED.match(text, at):
            inside = quoted[1] if quoted[1] is not None else quoted[2]
            found.append(_Token(_ESCAPE.sub(_unescape, inside), True))
            at = quoted.end()
        else:
            found.append(_Token(text[at], False))
            at += 1
    return found


def _unescape(found: re.Match[str]) -> str:
    what = found[1]
    return chr(int(what, 8)) if what[0] in "01234567" else _CONTROLS.get(what, what)


def checks_names(text: str) -> bool:
    """Return whether to check host names according to `text`, the value of
    `ssl.endpoint.identification.algorithm`. Raises ValueError for an unknown algorithm."""
    if text.lower() not in ("", "none", "https"):
        raise ValueError("must be https, or empty to check no names")
    return text.lower() == "https"


def tls_versions(text: str) -> tuple[str, str]:
    """Parse `ssl.enabled.protocols`; return the lowest and the highest supported version, as names
    of ssl.TLSVersion. Raises ValueError without a supported version.
    """
    names = {"TLSv1.2": "TLSv1_2", "TLSv1.3": "TLSv1_3"}
    given = [name.strip() for name in text.split(",")]
    usable = [known for name, known in names.items() if name in given]
    if not usable:
        raise ValueError("must have TLSv1.2 or TLSv1.3 in it")
    return usable[0], usable[-1]


def token_path(url: str) -> str | None:
    """Return the path in a `file:` URL, which Java accepts as a token endpoint; None for other
    URLs."""
    return "/" + url[len("file:") :].lstrip("/") if url.startswith("file:") else None


# -- login modules


def read_login(text: str, mechanism: str) -> Login:
    """Return the credentials in `text`, the value of `sasl.jaas.config`. `mechanism` is the value
    of `sasl.mechanism`, "" if not set.

    Raises ValueError for a text that Java rejects, and for unsupported options.
    """
    module = parse_jaas(text)
    if module.name not in _READERS:
        raise ValueError(
            f"the login module {module.name} is not known; known: {', '.join(_READERS)}"
        )
    read, mechanisms = _READERS[module.name]
    login = Login(mechanisms[0] if len(mechanisms) == 1 else "", read(module))
    if not mechanism and login.mechanism:
        return login
    if mechanism not in mechanisms:
        # Require `sasl.mechanism`: a guessed mechanism might send the password in clear text.
        needed = " or ".join(mechanisms)
        raise ValueError(
            f"{module.name} needs sasl.mechanism to be {needed}; it is {mechanism or 'not set'}"
        )
    return login


def _refuse_others(module: LoginModule, known: set[str], *prefixes: str) -> None:
    for name in module.options:
        if name in known or (prefixes and name.startswith(prefixes)):
            continue
        import difflib  # imported only for this error

        near = difflib.get_close_matches(name, sorted(known), 1)
        if near:
            raise ValueError(f"{name} of {module.name} is not known; did you mean {near[0]}?")
        shown = "an option" if "password" in known else name
        raise ValueError(
            f"{shown} of {module.name} is not supported; known: {', '.join(sorted(known))}"
        )


def _password(module: LoginModule) -> dict[str, Any]:
    known = {*_PASSWORD_OPTIONS, "serviceName"}
    if module.name == "ScramLoginModule":
        known.add("tokenauth")
    # Ignore options such as user_alice: only brokers use them, for the passwords of all users.
    _refuse_others(module, known, "user_")
    for name in _PASSWORD_OPTIONS:
        if name not in module.options:
            raise ValueError(f"{module.name} needs {name}")
    found: dict[str, Any] = {name: module.options[name] for name in _PASSWORD_OPTIONS}
    if _is_true(module, "tokenauth"):
        found["tokenauth"] = True
    return found


def _tokens_of_oauth(module: LoginModule) -> dict[str, Any]:
    if any(name.startswith("unsecuredLogin") for name in module.options):
        raise ValueError("tokens without a signature are not supported")
    prefix = "extension_"
    _refuse_others(module, set(_OAUTH_OPTIONS), prefix)
    found: dict[str, Any] = {
        ours: module.options[name]
        for name, ours in _OAUTH_OPTIONS.items()
        if name in module.options
    }
    extensions = {
        name[len(prefix) :]: text
        for name, text in module.options.items()
        if name.startswith(prefix)
    }
    return {**found, "extensions": extensions} if extensions else found


def _kerberos(module: LoginModule) -> dict[str, Any]:
    if "ticketCache" in module.options:
        raise ValueError(
            f"ticketCache of {module.name} is not supported; the environment variable KRB5CCNAME "
            "names the ticket cache"
        )
    _refuse_others(module, {*_KERBEROS_OPTIONS, *_KERBEROS_FLAGS, *_KERBEROS_IDLE})
    found: dict[str, Any] = {
        ours: module.options[name]
        for name, ours in _KERBEROS_OPTIONS.items()
        if name in module.options
    }
    if not _is_true(module, "useKeyTab"):
        if "keytab" in found:
            raise ValueError("keyTab needs useKeyTab=true")
        return found
    for name in ("keyTab", "principal"):
        if _KERBEROS_OPTIONS[name] not in found:
            raise ValueError(f"useKeyTab=true needs {name}")
    return found


def _msk(module: LoginModule) -> dict[str, Any]:
    others = sorted(module.options.keys() - {"awsProfileName"})
    if others:
        raise ValueError(
            f"{', '.join(others)} of {module.name} is not supported; credentials come from the "
            "environment, or from the profile awsProfileName"
        )
    profile = module.options.get("awsProfileName")
    return {} if profile is None else {"profile": profile}


def _is_true(module: LoginModule, name: str) -> bool:
    return module.options.get(name, "").lower() == "true"


_READERS: dict[str, tuple[Callable[[LoginModule], dict[str, Any]], tuple[str, ...]]] = {
    "PlainLoginModule": (_password, ("PLAIN",)),
    "ScramLoginModule": (_password, ("SCRAM-SHA-256", "SCRAM-SHA-512")),
    "OAuthBearerLoginModule": (_tokens_of_oauth, ("OAUTHBEARER",)),
    "Krb5LoginModule": (_kerberos, ("GSSAPI",)),
    "IAMLoginModule": (_msk, ("AWS_MSK_IAM",)),
}


# -- properties files


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE_IN_FILE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_PAIR = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)


def decode(content: bytes) -> str:
    """Decode a properties file as UTF-8; if it is not UTF-8, as ISO-8859-1, Java's encoding.

    Raises ValueError for UTF-16 and for text with NUL characters.
    """
    if content[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in content:
        raise ValueError("is not UTF-8 or ISO-8859-1")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def parse(text: str) -> dict[str, str]:
    """Return the settings of a properties file as a dict from name to value. The rules for
    comments, continued lines and escapes are those of Java.

    Raises ValueError for a malformed escape.
    """
    found = {}
    for line in _logical_lines(text):
        pair = _PAIR.fullmatch(line)
        if pair is not None:
            name = _without_escapes(pair[1], "a name")
            found[name] = _without_escapes(pair[2], name)
    return found


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    pending = ""
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        lines.append(pending + line)
        pending = ""
    return [*lines, pending] if pending else lines


def _without_escapes(text: str, name: str) -> str:
    def plain(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) == 5:
            return chr(int(code[1:], 16))
        if code == "u":
            raise ValueError(f"{name}: \\u needs four hexadecimal digits behind it")
        return _ESCAPES.get(code, code)

    found = _ESCAPE_IN_FILE.sub(plain, text)
    try:
        # Characters above \uffff are escaped as two surrogates.
        return found.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ValueError(f"{name}: contains a half of a surrogate pair") from None


# -- options of clients for settings of security


JAAS = "sasl.jaas.config"

_NAMES_CHECK = "ssl.endpoint.identification.algorithm"
_STORES = {
    "ssl.truststore.location": ("ssl.truststore.type", "cafile"),
    "ssl.keystore.location": ("ssl.keystore.type", "certfile"),
}
_SETTINGS_OF_TLS = frozenset(
    {*TLS, *_STORES, *(kind for kind, _ in _STORES.values()), _NAMES_CHECK}
)


def is_of_security(name: str) -> bool:
    """Return whether `login_options` or `tls_arguments` reads this setting."""
    return name == JAAS or name in _SETTINGS_OF_TLS


def login_options(text: str, mechanism: str) -> dict[str, Any]:
    """Return the options of clients for the credentials in `text`, the value of `sasl.jaas.config`.

    Supports PLAIN, SCRAM and GSSAPI. Raises ValueError for other mechanisms, and the errors of
    `read_login`.
    """
    login = read_login(text, mechanism)
    names = {
        "username": "sasl_plain_username",
        "password": "sasl_plain_password",
        "tokenauth": "sasl_scram_tokenauth",
        "keytab": "sasl_kerberos_keytab",
        "principal": "sasl_kerberos_principal",
        "service_name": "sasl_kerberos_service_name",
    }
    for name in login.options:
        if name not in names:
            raise ValueError(f"{JAAS}: tokens need sasl_oauth_token_provider, which is an object")
    options = {names[name]: value for name, value in login.options.items()}
    if login.mechanism:
        options["sasl_mechanism"] = login.mechanism
    return options


def tls_arguments(pairs: Mapping[str, str]) -> tuple[dict[str, str], bool]:
    """Return the arguments of `create_ssl_context()`, and whether to check host names. Raises
    ValueError for stores of another type than PEM."""
    found = {TLS[name]: text for name, text in pairs.items() if name in TLS}
    for name, (kind, argument) in _STORES.items():
        if name in pairs:
            if pairs.get(kind, "JKS").upper() != "PEM":
                raise ValueError(f"{name}: only stores of type PEM can be read; set {kind}=PEM")
            found[argument] = pairs[name]
    return found, checks_names(pairs.get(_NAMES_CHECK, "https"))
