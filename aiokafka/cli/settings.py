"""Read connection settings from flags, the environment, a properties file and a profile."""

from __future__ import annotations

import difflib
import os
import ssl
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from aiokafka.cli import properties
from aiokafka.cli.running import wait_for
from aiokafka.errors import KafkaConfigurationError

__all__ = [
    "client_options",
    "expanded",
    "find_settings",
    "option_value",
    "profile_settings",
    "read_file",
    "read_line",
    "read_stdin",
]

#: Settings with an environment variable: AIOKAFKA_ and the name in capitals.
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
_OTHER_VARIABLES = ("CONFIG", "DEBUG", "NO_EXTENSIONS", "PROFILE", "PROPERTIES")
#: Options of -X whose values are text, even if a value looks like a number.
TEXTS = frozenset(
    {
        *("client_id", "client_rack", "group_id", "group_instance_id", "group_remote_assignor"),
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
    """Return the settings of all sources. In order of precedence, the sources are the options of
    -X, other flags, the environment, the properties file, and the profile.

    `flags` has settings by name, and the files to read as `profile`, `config` and `properties`.
    Raises KafkaConfigurationError for a malformed file, and OSError for an unreadable file.
    """
    _check_variables(environment)
    own, foreign = _given_options(flags.get("options") or ())
    found = _profile(flags, environment)
    path = flags.get("properties") or environment.get("AIOKAFKA_PROPERTIES")
    if path:
        pairs = properties.parse(_read(Path(path), properties.decode))
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
    """Return (own, foreign): -X options with the names of aiokafka, and settings from -X options
    with the names of Java's client or librdkafka."""
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
    """Raise KafkaConfigurationError for a misspelt environment variable."""
    known = [*(name.upper() for name in NAMES), *_OTHER_VARIABLES]
    prefix = "AIOKAFKA_"
    for variable in environment:
        name = variable.removeprefix(prefix)
        if name == variable or name in known:
            continue
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
    """Return the text of a file or pipe; signals interrupt the read.

    Raises KafkaConfigurationError for more than a megabyte or text that is not UTF-8, and OSError
    for an unreadable file.
    """
    return _read(path, _utf_8)


def _read(path: Path, decode: Callable[[bytes], str]) -> str:
    def read() -> bytes:
        with path.open("rb") as file:
            return file.read(_LONGEST + 1)

    return _as_text(str(path), wait_for(read), decode)


def read_stdin() -> str:
    """Return the text of stdin up to its end. Raises KafkaConfigurationError as `read_file`."""
    return _as_text("stdin", wait_for(lambda: _stdin().buffer.read(_LONGEST + 1)))


def read_line() -> str:
    """Return the first line of stdin, and leave the rest unread for the command.

    Raises KafkaConfigurationError as `read_file`.
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
    """Add the settings of a source, which takes precedence over earlier sources."""
    # An alternative, such as password_file, replaces the alternatives of earlier sources.
    for names in _EITHER:
        if not more.keys().isdisjoint(names):
            for name in names:
                found.pop(name, None)
    found.update(more)


def option_value(text: str) -> tuple[str, Any]:
    """Parse `name=value` of a client option.

    Numbers, true, false and none are converted, except for options in `TEXTS` (a rack may be called
    1), where only none is converted. Raises KafkaConfigurationError without a `=`, and for a
    password.
    """
    name, equals, value = text.partition("=")
    name = name.strip().replace(".", "_").replace("-", "_")
    if not equals or not name:
        raise KafkaConfigurationError(f"-X {text}: must be name=value")
    if name in _SECRETS:
        raise _not_public(name)
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
    path = expanded(named) if named else _default_file(environment)
    if path is None:
        if wanted:
            raise KafkaConfigurationError(
                f"profile {wanted!r}: there is no home directory to look in; use --config"
            )
        return {}
    if not named and not wanted and not path.is_file():
        return {}
    return profile_settings(read_file(path), str(path), wanted)


def _default_file(environment: Mapping[str, str]) -> Path | None:
    home = environment.get("XDG_CONFIG_HOME")
    try:
        return (Path(home) if home else Path.home() / ".config") / "aiokafka" / "config.toml"
    except RuntimeError:
        return None  # the user has no home directory, as in some containers


def expanded(path: str) -> Path:
    """Replace `~` in a path. Raises KafkaConfigurationError without a home directory."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise KafkaConfigurationError(f"{path}: there is no such home directory") from None


def profile_settings(text: str, path: str, wanted: str | None) -> dict[str, Any]:
    """Return the settings of the wanted profile, or of the `default` profile of the file.

    Raises KafkaConfigurationError for an unknown profile or unknown settings.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise KafkaConfigurationError(f"{path}: {error}") from None
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


def _fits(setting: str, value: Any) -> bool:
    """Return whether a setting of a profile may have this value."""
    if setting == "check_hostname":
        return isinstance(value, bool)
    if setting.startswith("bootstrap_") and isinstance(value, list):
        return all(isinstance(each, str) for each in value)
    return isinstance(value, str)


def client_options(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of a client for these settings.

    Raises KafkaConfigurationError for settings that contradict each other.
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
    """Remove the settings of TLS from `found`, and return a context with them; None without TLS."""
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
    from aiokafka.helpers import create_ssl_context

    given = _given_certificates(tls)
    try:
        context = create_ssl_context(**given)
    except OSError as error:  # ssl.SSLError, its subclass, names no file
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
    """Return arguments of `create_ssl_context`. In place of a file name, accept a directory of
    certificates or PEM text."""
    given = {}
    for name, value in tls.items():
        if not name.endswith("file"):
            given[name] = value
        elif "-----BEGIN" in value:
            # PEM from an environment variable. Used as a path, the PEM would be printed in errors.
            given[name.replace("file", "data")] = value
        else:
            path = os.path.expanduser(value)
            given["capath" if name == "cafile" and os.path.isdir(path) else name] = path
    return given


def _token_provider(found: dict[str, Any]) -> Any:
    """Remove the settings of OAUTHBEARER from `found`; return a token provider, or None without
    settings."""
    path, url = found.pop("token_file", None), found.pop("token_endpoint_url", None)
    scope = found.pop("token_scope", None)
    extensions = found.pop("token_extensions", None)
    header_urlencode = found.pop("token_header_urlencode", False)
    profile = found.pop("msk_profile", None)
    if found.get("sasl_mechanism") == "AWS_MSK_IAM":
        from aiokafka.oauth import MskIamTokenProvider

        # Brokers of MSK accept the same credentials by OAUTHBEARER.
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
