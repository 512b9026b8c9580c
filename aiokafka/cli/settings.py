"""Read connection settings from flags, the environment, a properties file and a profile."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiokafka import _properties as shared
from aiokafka.cli import properties
from aiokafka.cli.running import wait_for
from aiokafka.errors import KafkaConfigurationError

if TYPE_CHECKING:
    import ssl

__all__ = [
    "client_options",
    "default_file",
    "expanded",
    "find_settings",
    "option_value",
    "profile_settings",
    "profiles_in",
    "read_file",
    "read_line",
    "read_stdin",
]

#: Settings that can also be given by an environment variable: AIOKAFKA_ and the name in capitals.
NAMES = (
    "bootstrap_servers",
    "bootstrap_controllers",
    "security_protocol",
    "sasl_mechanism",
    "username",
    "password",
    "password_file",
    "ca_file",
    "cert_file",
    "key_file",
    "key_password",
    "token_file",
    "token_endpoint_url",
    "token_scope",
)
#: Environment variables that are not settings.
_OTHER_VARIABLES = ("CONFIG", "DEBUG", "DEFAULTS", "NO_EXTENSIONS", "PROFILE", "PROPERTIES")
#: Options of -X whose values stay text, even if a value looks like a number.
TEXTS = frozenset(
    {
        *("client_id", "client_rack", "group_id", "group_instance_id", "group_remote_assignor"),
        "proxy_url",
        *("sasl_kerberos_domain_name", "sasl_kerberos_keytab", "sasl_kerberos_principal"),
        *("sasl_kerberos_service_name", "sasl_plain_username", "transactional_id"),
    }
)
_EITHER = (
    ("password", "password_file"),
    ("bootstrap_servers", "bootstrap_controllers"),
    ("token_file", "token_endpoint_url"),
    ("ca_file", "ca_data"),
    ("cert_file", "cert_data", "key_data"),
    ("key_file", "key_data"),
)
_LONGEST = 1024 * 1024
_SECRETS = {"sasl_plain_password", "password", "key_password"}


def find_settings(flags: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of all sources. The sources, by precedence: the options of -X, the other
    flags, the environment, the properties file, the profile.

    `flags` has settings by name. It may also have `options` (the texts of -X), `profile` (the name
    of a profile), and the paths `config` (the configuration file) and `properties`. Raises
    KafkaConfigurationError for a malformed file, and OSError for an unreadable file.
    """
    _check_variables(environment)
    own, foreign = _given_options(flags.get("options") or ())
    found = _profile(flags, environment)
    path = flags.get("properties") or environment.get("AIOKAFKA_PROPERTIES")
    if path:
        text = _read(Path(path), shared.decode)
        try:
            pairs = shared.parse(text)
        except ValueError as error:
            raise KafkaConfigurationError(str(error)) from None
        stronger = (
            *(own.get("sasl_mechanism"), foreign.get("sasl_mechanism")),
            *(flags.get("sasl_mechanism"), environment.get("AIOKAFKA_SASL_MECHANISM")),
        )
        mechanism = next((each for each in stronger if each), None)
        _add(found, properties.settings_of(pairs, mechanism))
    variables = {name: environment.get(f"AIOKAFKA_{name.upper()}") for name in NAMES}
    _add(found, {name: text for name, text in variables.items() if text})
    _add(found, {name: flags[name] for name in NAMES if flags.get(name) is not None})
    _add(found, foreign)
    _add(found, own)
    return found


def _given_options(texts: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parse -X options. Return (own, foreign): the options with names of aiokafka, and the settings
    for options with names of the Java client or librdkafka.

    Raises KafkaConfigurationError for a malformed option and for a secret.
    """
    own: dict[str, Any] = {}
    foreign: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if equals and "." in name and properties.is_connection_name(name):
            if properties.is_secret(name):
                raise _not_public(name)
            foreign[name] = value
        else:
            name, value = option_value(text)
            own[name] = value
    return own, properties.settings_of(foreign)


def _check_variables(environment: Mapping[str, str]) -> None:
    """Raise KafkaConfigurationError if the name of an environment variable seems to be misspelt."""
    known = [*(name.upper() for name in NAMES), *_OTHER_VARIABLES]
    prefix = "AIOKAFKA_"
    for variable in environment:
        name = variable.removeprefix(prefix)
        if name == variable or name in known:
            continue
        import difflib  # imported only for unknown names

        near = difflib.get_close_matches(name, known, 1, 0.8)
        if name.startswith(("BOOTSTRAP", "SASL_", "SECURITY_", "SSL_")):
            near = near or difflib.get_close_matches(name, known, 1, 0)
        if near:
            raise KafkaConfigurationError(
                f"{variable}: is unknown; did you mean {prefix}{near[0]}?"
            )


def _not_public(name: str) -> KafkaConfigurationError:
    return KafkaConfigurationError(
        f"-X {name}: other users see command lines; use --properties, --password-stdin, "
        "--password-file or AIOKAFKA_PASSWORD"
    )


def read_file(path: Path) -> str:
    """Return the text of a file or pipe. Signals interrupt the read.

    Raises KafkaConfigurationError if it is longer than a megabyte or is not UTF-8, and OSError if
    it cannot be read.
    """
    return _read(path, _utf_8)


def _read(path: Path, decode: Callable[[bytes], str]) -> str:
    def read() -> bytes:
        with path.open("rb") as file:
            return file.read(_LONGEST + 1)

    return _as_text(str(path), wait_for(read), decode)


def read_stdin() -> str:
    """Return the text of stdin up to its end. Raises KafkaConfigurationError as `read_file`
    does."""
    return _as_text("stdin", wait_for(lambda: _stdin().buffer.read(_LONGEST + 1)))


def read_line() -> str:
    """Return the first line of stdin. The command can still read the rest.

    Raises KafkaConfigurationError as `read_file` does.
    """
    fd = _stdin().fileno()

    def read() -> bytes:
        line = bytearray()
        # A buffered read would also consume bytes after the line.
        while (each := os.read(fd, 1)) and each != b"\n" and len(line) <= _LONGEST:
            line += each
        return bytes(line)

    return _as_text("stdin", wait_for(read)).removesuffix("\r")


def _stdin() -> Any:
    if sys.stdin is None:
        raise KafkaConfigurationError("stdin is closed")
    return sys.stdin


def _utf_8(content: bytes) -> str:
    return content.decode("utf-8-sig")


def _as_text(name: str, content: bytes, decode: Callable[[bytes], str] = _utf_8) -> str:
    if len(content) > _LONGEST:
        raise KafkaConfigurationError(f"{name}: is longer than {_LONGEST} bytes")
    try:
        return decode(content)
    except UnicodeDecodeError as error:
        raise KafkaConfigurationError(f"{name}: is not UTF-8: {error.reason}") from None
    except ValueError as error:
        raise KafkaConfigurationError(f"{name}: {error}") from None


def _add(found: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add the settings of a source to `found`. They override the settings of sources added
    before."""
    # A setting also overrides its alternatives: password_file, for example, removes the password of
    # a source added before.
    for names in _EITHER:
        if not more.keys().isdisjoint(names):
            for name in names:
                found.pop(name, None)
    found.update(more)


def option_value(text: str) -> tuple[str, Any]:
    """Parse `name=value` of a client option (-X).

    Numbers, true, false and none are converted. For an option in `TEXTS`, only none is converted: a
    client_rack, for example, may be the text "1". Raises KafkaConfigurationError if the = is
    missing, for a password, and for a `proxy_url` with a user or password.
    """
    name, equals, value = text.partition("=")
    name = name.strip().replace(".", "_").replace("-", "_")
    if not equals or not name:
        raise KafkaConfigurationError(f"-X {text}: must be name=value")
    if name in _SECRETS:
        raise _not_public(name)
    if name == "proxy_url" and "@" in value:
        raise KafkaConfigurationError(
            "-X proxy_url: other users see command lines; put a proxy's password into a profile or "
            "into the file of AIOKAFKA_DEFAULTS"
        )
    words = {"true": True, "false": False, "none": None, "null": None}
    if name in TEXTS:
        return name, None if value.lower() in ("none", "null") else value
    if value.lower() in words:
        return name, words[value.lower()]
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value


def _profile(flags: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    named = flags.get("config") or environment.get("AIOKAFKA_CONFIG")
    wanted = flags.get("profile") or environment.get("AIOKAFKA_PROFILE")
    path = expanded(named) if named else default_file(environment)
    if path is None:
        if wanted:
            raise KafkaConfigurationError(
                f"profile {wanted!r}: there is no home directory to look in; use --config"
            )
        return {}
    if not path.is_file() and not named:
        if not wanted:
            return {}
        raise KafkaConfigurationError(
            f"profile {wanted!r}: there is no {path}; `aiokafka profile create {wanted}` makes it"
        )
    return profile_settings(read_file(path), str(path), wanted)


def default_file(environment: Mapping[str, str]) -> Path | None:
    """Return the path of the configuration file; None without a home directory."""
    home = environment.get("XDG_CONFIG_HOME")
    try:
        return (Path(home) if home else Path.home() / ".config") / "aiokafka" / "config.toml"
    except RuntimeError:
        return None  # the user has no home directory, as in some containers


def expanded(path: str) -> Path:
    """Replace `~` in a path by the home directory. Raises KafkaConfigurationError if there is
    none."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise KafkaConfigurationError(f"{path}: there is no such home directory") from None


def profile_settings(text: str, path: str, wanted: str | None) -> dict[str, Any]:
    """Return the settings of a profile in a TOML file: of `wanted`, or of the profile that
    `default` in the file names; {} if neither is given.

    `path` is for error texts. Raises KafkaConfigurationError for malformed TOML, an unknown
    profile, unknown settings, and values of another type.
    """
    content = _toml(text, path)
    profiles = content.get("profiles", {})
    if not isinstance(profiles, dict):
        raise KafkaConfigurationError(f"{path}: `profiles` must be a table")
    name = wanted or content.get("default")
    if name is None:
        return {}
    if not isinstance(name, str) or not isinstance(profiles.get(name), dict):
        known = ", ".join(sorted(profiles)) or "none"
        raise KafkaConfigurationError(f"{path}: no profile {name!r}; there are: {known}")
    found = dict(profiles[name])
    options = found.pop("options", {})
    if not isinstance(options, dict):
        raise KafkaConfigurationError(f"{path}: profile {name!r}: `options` must be a table")
    settings = [*NAMES, "check_hostname"]
    unknown = sorted(found.keys() - set(settings))
    if unknown:
        import difflib

        near = difflib.get_close_matches(unknown[0], settings, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise KafkaConfigurationError(
            f"{path}: profile {name!r}: unknown: {', '.join(unknown)}; {hint}"
            f"known: {', '.join(NAMES)}, check_hostname, and a table `options`"
        )
    for setting, value in found.items():
        if not _fits(setting, value):
            kind = "true or false" if setting == "check_hostname" else "text (in quotes)"
            raise KafkaConfigurationError(f"{path}: profile {name!r}: {setting}: must be {kind}")
    return {**found, **options}


def profiles_in(text: str, path: str) -> tuple[dict[str, Any], str | None]:
    """Return the profiles in a TOML file by name, and the name of the default (None without one).

    Raises KafkaConfigurationError for malformed TOML.
    """
    content = _toml(text, path)
    profiles, default = content.get("profiles", {}), content.get("default")
    if not isinstance(profiles, dict):
        raise KafkaConfigurationError(f"{path}: `profiles` must be a table")
    return profiles, default if isinstance(default, str) else None


def _toml(text: str, path: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return dict(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise KafkaConfigurationError(f"{path}: {error}") from None


def _fits(setting: str, value: Any) -> bool:
    """Return whether the type of a value is right for a setting of a profile."""
    if setting == "check_hostname":
        return isinstance(value, bool)
    if setting.startswith("bootstrap_") and isinstance(value, list):
        return all(isinstance(each, str) for each in value)
    return isinstance(value, str)


def client_options(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Convert settings to the keyword arguments of a client.

    Raises KafkaConfigurationError for settings that contradict each other, and for files that
    cannot be used.
    """
    found = dict(settings)
    context = _tls_context(found)
    protocol = str(found.get("security_protocol", "PLAINTEXT")).upper()
    found["security_protocol"] = protocol
    provider = _token_provider(found)
    username, password = found.pop("username", None), _password(found)
    if "bootstrap_controllers" not in found:
        found.setdefault("bootstrap_servers", "localhost:9092")
    if provider is not None:
        if not protocol.startswith("SASL_"):
            raise KafkaConfigurationError(
                f"tokens need --security-protocol SASL_SSL or SASL_PLAINTEXT; it is {protocol}"
            )
        found.setdefault("sasl_mechanism", "OAUTHBEARER")
        found["sasl_oauth_token_provider"] = provider
    elif username is not None or password is not None:
        if not protocol.startswith("SASL_"):
            raise KafkaConfigurationError(
                f"a user name or password needs --security-protocol SASL_SSL or SASL_PLAINTEXT; "
                f"it is {protocol}"
            )
        found["sasl_plain_username"], found["sasl_plain_password"] = username, password
    if context is not None:
        found["ssl_context"] = context
    return found


def _tls_context(found: dict[str, Any]) -> ssl.SSLContext | None:
    """Remove the TLS settings from `found`; return a context made from them, None without TLS.

    Raises KafkaConfigurationError for certificates without TLS, and for unusable files.
    """
    tls = {to: found.pop(name) for name, to in properties.TLS.items() if name in found}
    check_hostname = found.pop("check_hostname", True)
    check_certificate = found.pop("check_certificate", True)
    versions = found.pop("tls_versions", None)
    protocol = str(found.get("security_protocol", "PLAINTEXT")).upper()
    if not protocol.endswith("SSL"):
        if {"cafile", "cadata", "certfile", "certdata"} & tls.keys():
            raise KafkaConfigurationError(
                f"certificates need --security-protocol SSL or SASL_SSL; it is {protocol}"
            )
        return None
    import ssl

    from aiokafka.helpers import create_ssl_context

    given = _given_certificates(tls)
    try:
        context = create_ssl_context(**given)
    except OSError as error:  # such as ssl.SSLError, which does not name the file
        named = ", ".join(str(path) for name, path in given.items() if name.endswith("file"))
        reason = error.strerror or str(error)
        raise KafkaConfigurationError(f"TLS, {named or 'settings'}: {reason}") from error
    context.check_hostname = bool(check_hostname) and bool(check_certificate)
    if not check_certificate:
        context.verify_mode = ssl.CERT_NONE
    if versions is not None:
        context.minimum_version = ssl.TLSVersion[versions[0]]
        context.maximum_version = ssl.TLSVersion[versions[1]]
    return context


def _given_certificates(tls: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `create_ssl_context`. Where a setting has the path of a file, PEM
    text is accepted, too. For `cafile`, the path of a directory of certificates is accepted."""
    given = {}
    for name, value in tls.items():
        if not name.endswith("file"):
            given[name] = value
        elif "-----BEGIN" in value:
            # PEM text, for example from an environment variable. If it were used as a path, error
            # texts would contain it.
            given[name.replace("file", "data")] = value
        else:
            path = os.path.expanduser(value)
            given["capath" if name == "cafile" and os.path.isdir(path) else name] = path
    return given


def _token_provider(found: dict[str, Any]) -> Any:
    """Remove the OAUTHBEARER settings from `found`; return a token provider made from them.

    Returns None without such settings. Raises KafkaConfigurationError if settings are
    missing, or contradict each other.
    """
    path, url = found.pop("token_file", None), found.pop("token_endpoint_url", None)
    scope = found.pop("token_scope", None)
    extensions = found.pop("token_extensions", None)
    header_urlencode = found.pop("token_header_urlencode", False)
    profile = found.pop("msk_profile", None)
    if found.get("sasl_mechanism") == "AWS_MSK_IAM":
        from aiokafka.oauth import MskIamTokenProvider

        # MSK brokers also accept these credentials as OAUTHBEARER tokens.
        found["sasl_mechanism"] = "OAUTHBEARER"
        return MskIamTokenProvider(profile=profile)
    if path and url:
        raise KafkaConfigurationError("give token_file or token_endpoint_url, not both")
    if path:
        from aiokafka.oauth import FileTokenProvider

        return FileTokenProvider(expanded(path), extensions=extensions)
    if not url:
        if found.get("sasl_mechanism") == "OAUTHBEARER":
            raise KafkaConfigurationError(
                "OAUTHBEARER needs token_file, or token_endpoint_url "
                "(sasl.oauthbearer.token.endpoint.url in a properties file)"
            )
        return None
    from aiokafka.oauth import ClientCredentialsTokenProvider

    return ClientCredentialsTokenProvider(
        url,
        client_id=found.pop("username", None),
        client_secret=_password(found),
        scope=scope,
        extensions=extensions,
        header_urlencode=header_urlencode,
    )


def _password(found: dict[str, Any]) -> str | None:
    path = found.pop("password_file", None)
    password: str | None = found.pop("password", None)
    if password is None and path is not None:
        password = read_file(expanded(path)).rstrip("\r\n")
    return password
