"""A broker in a docker container, for machines that have docker rather than Java and Maven."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from tests.kafka import probe
from tests.kafka.processes import free_port
from tests.kafka.settings import HOST
from tests.kafka.versions import NEWEST

START_TIMEOUT = 120.0


class DockerBroker:
    """One container of the image ``apache/kafka`` (needs the ``docker`` package and daemon)."""

    def __init__(self, version: str = NEWEST) -> None:
        self._image = f"apache/kafka:{version}"
        self._port = free_port()
        self._container: Any = None

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self._port}"

    def start(self) -> None:
        """Pull the image if need be, and return when the broker serves."""
        import docker  # type: ignore[import-untyped, import-not-found, unused-ignore]

        self._container = docker.from_env().containers.run(
            self._image,
            detach=True,
            auto_remove=True,
            ports={f"{self._port}/tcp": (HOST, self._port)},
            environment=self._environment(),
        )
        deadline = time.monotonic() + START_TIMEOUT
        while not self._serves():
            if time.monotonic() > deadline:
                shown = self.logs()
                self.stop()
                raise TimeoutError(f"{self._image} does not serve\n{shown}")
            time.sleep(0.2)

    def stop(self) -> None:
        container, self._container = self._container, None
        if container is not None:
            container.kill()

    def logs(self, lines: int = 40) -> str:
        return str(self._container.logs(tail=lines).decode(errors="replace"))

    def _serves(self) -> bool:
        with contextlib.suppress(OSError, ValueError):
            view = probe.ask((HOST, self._port), names_controller=True)
            return view.is_complete(frozenset({1}))
        return False

    def _environment(self) -> dict[str, str]:
        properties = {
            "node.id": "1",
            "process.roles": "broker,controller",
            "controller.quorum.voters": "1@localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://:{self._port},CONTROLLER://:9093",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "500",
        }
        return {
            "KAFKA_" + name.upper().replace(".", "_"): value for name, value in properties.items()
        }
