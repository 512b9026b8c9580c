"""The container of ``--kafka docker``: what would be started, and what is said without docker."""

from __future__ import annotations

import sys

import pytest

from tests.kafka.docker_broker import (
    DockerBroker,
    DockerError,
    chosen_version,
    container_options,
    engine,
    variable,
)
from tests.kafka.versions import DEFAULT_VERSION


def test_a_container_serves_where_clients_are_told() -> None:
    options = container_options(DEFAULT_VERSION, 19092)
    assert options["image"] == f"apache/kafka:{DEFAULT_VERSION}"
    assert options["ports"] == {"19092/tcp": ("127.0.0.1", 19092)}
    environment = options["environment"]
    assert environment["KAFKA_PROCESS_ROLES"] == "broker,controller"
    assert environment["KAFKA_LISTENERS"] == "PLAINTEXT://:19092,CONTROLLER://:9093"
    assert environment["KAFKA_ADVERTISED_LISTENERS"] == "PLAINTEXT://127.0.0.1:19092"
    assert environment["KAFKA_CONTROLLER_QUORUM_VOTERS"] == "1@127.0.0.1:9093"
    # Tests count on short sessions, and on topics of the brokers with one replica.
    assert environment["KAFKA_GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS"] == "500"
    assert environment["KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR"] == "1"
    assert environment["KAFKA_TRANSACTION_STATE_LOG_MIN_ISR"] == "1"
    assert all(isinstance(value, str) for value in environment.values())


def test_properties_have_the_variables_of_the_image() -> None:
    assert variable("node.id") == "KAFKA_NODE_ID"
    assert variable("listener.name.sasl_ssl.scram-sha-256.x") == (
        "KAFKA_LISTENER_NAME_SASL__SSL_SCRAM___SHA___256_X"
    )


def test_brokers_do_not_share_a_port() -> None:
    assert len({DockerBroker().bootstrap_servers for _ in range(3)}) > 1


@pytest.mark.parametrize(
    ("choice", "version"),
    [
        ("docker", DEFAULT_VERSION),
        ("docker:3.9.2", "3.9.2"),
        ("maven", ""),
        ("docker:9092", ""),
        ("localhost:9092", ""),
    ],
)
def test_the_version_is_chosen_by_the_option(choice: str, version: str) -> None:
    assert chosen_version(choice) == version


@pytest.mark.parametrize("version", ["2.8.2", "99.0.0"])
def test_a_version_without_an_image_is_refused(version: str) -> None:
    with pytest.raises(DockerError, match=rf"--kafka docker:{version}: .*{DEFAULT_VERSION}"):
        chosen_version(f"docker:{version}")


def test_without_the_package_the_group_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(DockerError, match="pip install --group docker"):
        engine()


def test_without_an_engine_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("docker")
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    with pytest.raises(DockerError, match="no docker engine answers"):
        DockerBroker().start()
