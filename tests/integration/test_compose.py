"""`docker-compose.yml` without docker: its broker settings and its commands on a broker from jars,
and the examples of security against it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped, import-not-found, unused-ignore]

from tests.examples.scripts import REPOSITORY, run_script
from tests.kafka.fixtures import need_own_brokers
from tests.kafka.launcher import KafkaCluster
from tests.kafka.settings import Extras

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

COMPOSE: dict[str, Any] = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())
SERVICES = COMPOSE["services"]

# Where brokers listen, and which others they know, is up to the launcher.
PLACES = re.compile(r"(node\.id|.*listeners|.*protocol\.map|.*listener\.names?|controller\..*)")


def broker_properties() -> dict[str, str]:
    """What the image makes of the environment."""
    found = {}
    for name, value in SERVICES["kafka"]["environment"].items():
        name = name.removeprefix("KAFKA_").lower().replace("___", "-").replace("__", "_")
        found[name.replace("_", ".")] = str(value)
    return found


def listeners() -> dict[str, str]:
    pairs = broker_properties()["listener.security.protocol.map"].split(",")
    return {
        name: protocol
        for name, _, protocol in (pair.partition(":") for pair in pairs)
        if name in ("TLS", "LOGIN")
    }


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the first container fills."""
    need_own_brokers()
    folder = tmp_path_factory.mktemp("tls")
    service = SERVICES["certificate"]
    [script] = service["command"]
    command = [*service["entrypoint"], script.replace("/tls/", f"{folder}/")]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return folder


@pytest.fixture(scope="module")
def composed(tls: Path) -> Iterator[KafkaCluster]:
    config = {
        name: value.replace("/tls/", f"{tls}/")
        for name, value in broker_properties().items()
        if not PLACES.fullmatch(name)
    }
    words = SERVICES["users"]["command"]
    user = words[words.index("--entity-name") + 1]
    added = words[words.index("--add-config") + 1]
    options = []
    for mechanism, password in re.findall(r"(SCRAM-SHA-\d+)=\[password=([^]]+)\]", added):
        options += ["--add-scram", f"{mechanism}=[name={user},password={password}]"]
    assert len(options) == 4
    extras = Extras(listeners=listeners(), host="localhost", format_options=tuple(options))
    with KafkaCluster(config=config, extras=extras) as cluster:
        yield cluster


def test_every_listener_is_published_and_told() -> None:
    properties = broker_properties()
    told = dict(re.findall(r"(\w+)://localhost:(\d+)", properties["advertised.listeners"]))
    heard = dict(re.findall(r"(\w+)://:(\d+)", properties["listeners"]))
    assert told == {"PLAINTEXT": "9092", "TLS": "9093", "LOGIN": "9094"}
    assert told.items() <= heard.items()
    assert SERVICES["kafka"]["ports"] == [f"{port}:{port}" for port in told.values()]
    protocols = dict(
        pair.split(":") for pair in properties["listener.security.protocol.map"].split(",")
    )
    assert protocols.keys() == heard.keys()
    assert "SSL://" not in properties["advertised.listeners"]  # the image would want files for it


async def test_tls(composed: KafkaCluster, tls: Path) -> None:
    servers = composed.addresses("TLS")
    output = await run_script("tls.py", "--bootstrap", servers, "--cafile", str(tls / "ca.pem"))
    assert output.endswith("read: b'for your eyes only'\n")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_passwords(composed: KafkaCluster, tls: Path, tmp_path: Path, mechanism: str) -> None:
    password = tmp_path / "password"
    password.write_text("alice-secret\n")
    arguments = ["--bootstrap", composed.addresses("LOGIN"), "--cafile", str(tls / "ca.pem")]
    arguments += ["--mechanism", mechanism, "--password-file", str(password)]
    assert (await run_script("sasl_scram.py", *arguments)).endswith("read: b'by alice'\n")


async def test_tokens(composed: KafkaCluster, tls: Path) -> None:
    arguments = ["--bootstrap", composed.addresses("LOGIN"), "--cafile", str(tls / "ca.pem")]
    assert (await run_script("sasl_oauthbearer.py", *arguments)).endswith("read: b'by alice'\n")
