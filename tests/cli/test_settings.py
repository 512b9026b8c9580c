"""Where connection settings come from."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from aiokafka import options
from aiokafka.cli.settings import (
    TEXTS,
    client_options,
    find_settings,
    option_value,
    profile_settings,
)
from aiokafka.errors import KafkaConfigurationError
from tests.testing.certificates import make_contexts

_OF_TEXT = ("str", "str | None", "Credential | None")
PROFILES = """
default = "local"

[profiles.local]
bootstrap_servers = "local:1"

[profiles.far]
bootstrap_servers = "far:1"
security_protocol = "SASL_PLAINTEXT"
username = "alice"
password = "from the profile"

[profiles.far.options]
request_timeout_ms = 5000
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "profiles.toml").write_text(PROFILES)
    return {"AIOKAFKA_CONFIG": str(tmp_path / "profiles.toml")}


def test_the_first_source_that_has_a_setting_decides(
    environment: dict[str, str], tmp_path: Path
) -> None:
    def servers(**flags: Any) -> object:
        return find_settings(flags, environment)["bootstrap_servers"]

    assert servers() == "local:1"
    assert servers(profile="far") == "far:1"
    java = tmp_path / "client.properties"
    java.write_text("bootstrap.servers=java:1\n")
    assert servers(properties=str(java)) == "java:1"
    environment["AIOKAFKA_BOOTSTRAP_SERVERS"] = "variable:1"
    assert servers(properties=str(java)) == "variable:1"
    assert servers(bootstrap_servers="flag:1") == "flag:1"
    assert servers(bootstrap_servers="flag:1", options=["bootstrap_servers=x:1"]) == "x:1"


def test_brokers_and_controllers_replace_each_other(environment: dict[str, str]) -> None:
    def addresses(**flags: Any) -> dict[str, Any]:
        found = client_options(find_settings(flags, environment))
        return {name: value for name, value in found.items() if name.startswith("bootstrap_")}

    assert addresses(bootstrap_controllers="c:1") == {"bootstrap_controllers": "c:1"}
    environment["AIOKAFKA_BOOTSTRAP_CONTROLLERS"] = "c:2"
    assert addresses() == {"bootstrap_controllers": "c:2"}
    assert addresses(options=["bootstrap_servers=x:1"]) == {"bootstrap_servers": "x:1"}
    assert len(addresses(bootstrap_servers="x:1", bootstrap_controllers="c:1")) == 2


@pytest.mark.parametrize(
    ("weaker", "stronger"),
    [
        ("ssl.truststore.certificates=PEM", {"ca_file": "ca.pem"}),
        ("ssl.ca.location=other.pem", {"ca_file": "ca.pem"}),
        ("ssl.keystore.certificate.chain=PEM\nssl.keystore.key=PEM", {"cert_file": "all.pem"}),
        (
            "ssl.keystore.certificate.chain=PEM\nssl.keystore.key=PEM",
            {"cert_file": "own.pem", "key_file": "own.key"},
        ),
        ("sasl.oauthbearer.token.endpoint.url=https://idp", {"token_file": "token"}),
    ],
)
def test_a_file_of_a_stronger_source_replaces_the_other_kind(
    weaker: str, stronger: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(weaker)
    assert find_settings({"properties": str(file), **stronger}, {"HOME": str(tmp_path)}) == stronger
    variables = {f"AIOKAFKA_{name.upper()}": text for name, text in stronger.items()}
    environment = {"HOME": str(tmp_path), "AIOKAFKA_PROPERTIES": str(file), **variables}
    assert find_settings({}, environment) == stronger


@pytest.mark.skipif(sys.platform == "win32", reason="files of Unix")
@pytest.mark.parametrize("flag", ["config", "properties", "password_file"])
def test_a_file_without_end_or_text_is_named(flag: str, tmp_path: Path) -> None:
    wrong = tmp_path / "binary"
    wrong.write_bytes(b"\xff\xfe\0")
    for path, said in (("/dev/zero", "longer than"), (str(wrong), "not UTF-8")):
        with pytest.raises(KafkaConfigurationError, match=f"{path}: is {said}"):
            client_options(find_settings({"security_protocol": "SASL_SSL", flag: path}, {}))


def test_a_file_of_settings_may_be_a_pipe_or_have_a_mark(tmp_path: Path) -> None:
    file = tmp_path / "settings"
    file.write_bytes(b"\xef\xbb\xbfbootstrap.controllers=c:1\n")
    assert find_settings({"properties": str(file)}, {})["bootstrap_controllers"] == "c:1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("profiles = 1", "`profiles` must be a table"),
        ("default = 5", "no profile 5; there are: none"),
        ("default = 'a'\nprofiles.a = 1", "no profile 'a'; there are: a"),
        ("default = 'a'\nprofiles.a.options = 1", "`options` must be a table"),
        ("default = 'a'\nprofiles.a.nothing = 1", "unknown: nothing"),
        ("[profiles", "Expected"),
    ],
)
def test_a_broken_file_of_profiles_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=f"f.toml: .*{message}"):
        profile_settings(text, "f.toml", None)


def test_without_any_source_nothing_is_set(tmp_path: Path) -> None:
    assert find_settings({}, {"XDG_CONFIG_HOME": str(tmp_path)}) == {}
    assert client_options({})["bootstrap_servers"] == "localhost:9092"


def test_a_user_may_have_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers have users that no file of passwords knows."""
    monkeypatch.setenv("HOME", "~")  # as if that was all that is known
    assert find_settings({}, {}) == {}
    with pytest.raises(KafkaConfigurationError, match="'far': there is no home directory"):
        find_settings({"profile": "far"}, {})
    with pytest.raises(KafkaConfigurationError, match="~/f: there is no such home directory"):
        find_settings({"config": "~/f"}, {})


def test_a_password_of_a_stronger_source_replaces_the_other_kind(
    environment: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text("from the file\n")
    found = find_settings({"profile": "far", "password_file": str(file)}, environment)
    assert client_options(found)["sasl_plain_password"] == "from the file"
    environment["AIOKAFKA_PASSWORD"] = "from the environment"
    found = find_settings({"profile": "far"}, environment)
    assert client_options(found)["sasl_plain_password"] == "from the environment"
    assert client_options(found)["request_timeout_ms"] == 5000


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"profile": "nowhere"}, "no profile 'nowhere'; there are: far, local"),
        ({"options": ["request_timeout_ms"]}, "must be name=value"),
        ({"options": ["sasl_plain_password=secret"]}, "other users see command lines"),
    ],
)
def test_wrong_settings_say_what_is_wrong(
    flags: dict[str, Any], message: str, environment: dict[str, str]
) -> None:
    with pytest.raises(KafkaConfigurationError, match=re.escape(message)) as caught:
        find_settings(flags, environment)
    assert "secret" not in str(caught.value)


def test_unknown_settings_of_a_profile_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "profiles.toml"
    file.write_text('[profiles.a]\nbootstrap_server = "x"\n')
    with pytest.raises(
        KafkaConfigurationError, match="unknown: bootstrap_server; did you mean bootstrap_servers"
    ):
        find_settings({"profile": "a", "config": str(file)}, {})
    file.write_text("[profiles.a\n")
    with pytest.raises(KafkaConfigurationError, match=r"profiles\.toml"):
        find_settings({"profile": "a", "config": str(file)}, {})


def test_credentials_need_a_protocol_that_uses_them() -> None:
    with pytest.raises(KafkaConfigurationError, match="--security-protocol SASL_SSL"):
        client_options({"username": "alice", "password": "x"})
    with pytest.raises(KafkaConfigurationError, match="--security-protocol SSL"):
        client_options({"ca_file": "ca.pem"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("linger.ms=5", ("linger_ms", 5)),
        ("rate=0.5", ("rate", 0.5)),
        ("check_crcs=false", ("check_crcs", False)),
        ("client_rack=none", ("client_rack", None)),
        ("client_id=a=b", ("client_id", "a=b")),
    ],
)
def test_option_values_have_types(text: str, expected: tuple[str, object]) -> None:
    assert option_value(text) == expected


def test_the_password_of_a_proxy_is_not_public() -> None:
    assert option_value("proxy.url=http://h:1") == ("proxy_url", "http://h:1")
    with pytest.raises(KafkaConfigurationError, match="AIOKAFKA_DEFAULTS") as caught:
        option_value("proxy_url=http://bob:pa55word@h:1")
    assert "pa55word" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("password = 5", "password: must be text"),
        ("password_file = 5", "password_file: must be text"),
        ("ca_file = true", "ca_file: must be text"),
        ("bootstrap_servers = [1]", "bootstrap_servers: must be text"),
        ('check_hostname = "false"', "check_hostname: must be true or false"),
    ],
)
def test_settings_of_a_profile_have_types(line: str, problem: str) -> None:
    text = f"[profiles.far]\n{line}\n"
    with pytest.raises(
        KafkaConfigurationError, match=f"^KafkaConfigurationError: p: .*'far': {problem}"
    ):
        profile_settings(text, "p", "far")
    listed = '[profiles.far]\nbootstrap_servers = ["a:1", "b:2"]\ncheck_hostname = false'
    assert profile_settings(listed, "p", "far")["bootstrap_servers"] == ["a:1", "b:2"]


def test_options_that_are_texts_take_numbers_as_texts() -> None:
    assert option_value("client.rack=1") == ("client_rack", "1")
    assert option_value("group_instance_id=0e1") == ("group_instance_id", "0e1")
    assert option_value("client_id=none") == ("client_id", None)
    every: dict[str, Any] = {}
    for each in (options.AdminOptions, options.ConsumerOptions, options.ProducerOptions):
        every |= each.__annotations__
    texts = {name for name, kind in every.items() if kind.__forward_arg__ in _OF_TEXT}
    assert texts - {"sasl_plain_password"} == TEXTS  # which may not stand on a command line


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("AIOKAFKA_BOOTSTRAP_SERVER", "AIOKAFKA_BOOTSTRAP_SERVERS"),
        ("AIOKAFKA_PASWORD", "AIOKAFKA_PASSWORD"),
        ("AIOKAFKA_SASL_MECHANISMS", "AIOKAFKA_SASL_MECHANISM"),
        ("AIOKAFKA_SASL_USERNAME", "AIOKAFKA_USERNAME"),
        ("AIOKAFKA_SASL_PLAIN_PASSWORD", "AIOKAFKA_PASSWORD"),
        ("AIOKAFKA_BOOTSTRAP", "AIOKAFKA_BOOTSTRAP_SERVERS"),
    ],
)
def test_a_misspelt_variable_is_named(name: str, nearest: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=rf"{name}: is unknown; .* {nearest}\?"):
        find_settings({}, {name: "hush"})


def test_variables_of_other_programs_are_none_of_ours(tmp_path: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path), "AIOKAFKA_TOPIC": "t", "AIOKAFKA_LONG": "1"}
    assert find_settings({}, environment) == {}


def test_options_of_kcat_are_read(tmp_path: Path) -> None:
    given = (
        *("metadata.broker.list=b:1", "security.protocol=sasl_plaintext", "client.id=7"),
        *("sasl.mechanisms=PLAIN", "sasl.username=me", "socket.timeout.ms=5000", "linger_ms=1"),
    )
    flags = {"options": given, "password_file": str(tmp_path / "password")}
    (tmp_path / "password").write_text("p\n")
    assert client_options(find_settings(flags, {"XDG_CONFIG_HOME": str(tmp_path)})) == {
        "bootstrap_servers": "b:1",
        "security_protocol": "SASL_PLAINTEXT",
        "client_id": "7",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "me",
        "sasl_plain_password": "p",
        "request_timeout_ms": 5000,
        "linger_ms": 1,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sasl.password=hush", "-X sasl.password: other users see command lines"),
        ("sasl.jaas.config=hush", "-X sasl.jaas.config: other users see command lines"),
        ("ssl.key.pem=hush", "-X ssl.key.pem: other users see command lines"),
        ("sasl.mecanism=PLAIN", "sasl.mecanism: is not known here; did you mean sasl.mechanism?"),
        ("ssl.cipher.suites=x", "ssl.cipher.suites: is not supported"),
        ("request.timeout.ms=soon", "request.timeout.ms='soon': must be a number"),
    ],
)
def test_options_of_kcat_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=re.escape(message)) as caught:
        find_settings({"options": [text]}, {})
    assert "hush" not in str(caught.value)


def test_an_empty_algorithm_stands_for_no_check_of_names() -> None:
    flags = {"options": ["security.protocol=ssl", "ssl.endpoint.identification.algorithm="]}
    assert not client_options(find_settings(flags, {}))["ssl_context"].check_hostname


def test_a_mechanism_of_a_stronger_source_decides_what_a_login_is_for(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        "username=u password=p;\n"
    )
    flags = {"properties": str(file), "sasl_mechanism": "SCRAM-SHA-256"}
    found = find_settings(flags, {"XDG_CONFIG_HOME": str(tmp_path)})
    assert found == {"username": "u", "password": "p", "sasl_mechanism": "SCRAM-SHA-256"}


def test_pem_may_stand_in_a_variable(tmp_path: Path) -> None:
    make_contexts(tmp_path)
    pem = (tmp_path / "server.pem").read_text()
    environment = {"AIOKAFKA_CA_FILE": pem.replace("\n", "\\n"), "AIOKAFKA_CERT_FILE": pem}
    found = find_settings({"security_protocol": "SSL"}, environment)
    assert len(client_options(found)["ssl_context"].get_ca_certs()) == 1
    with pytest.raises(KafkaConfigurationError, match="TLS, settings") as caught:
        client_options({**found, "cert_file": "-----BEGIN PRIVATE KEY-----hush"})
    assert "hush" not in str(caught.value)
