"""A broker in a docker container, for machines that have docker rather than Java and Maven."""

from __future__ import annotations

import contextlib
import re
import time
from typing import Any

from tests.kafka import probe, settings
from tests.kafka.processes import free_port
from tests.kafka.settings import HOST, PLAINTEXT, Extras, Ports
from tests.kafka.versions import DEFAULT_VERSION, VERSIONS

START_TIMEOUT = 120.0
_CHOICE = re.compile(r"docker(?::(\d+\.\d+\.\d+))?")
_CONTROLLER_PORT = 9093
# Apache publishes images since this version.
_OLDEST = (3, 7)


class DockerError(RuntimeError):
    """No container can be started here; the message says what is missing."""


def chosen_version(choice: str) -> str:
    """Return the version of Kafka that ``--kafka docker`` or ``--kafka docker:VERSION`` names;
    "" for other places.

    Raises DockerError for a version without an image.
    """
    found = _CHOICE.fullmatch(choice)
    if found is None:
        return ""
    version = found[1] or DEFAULT_VERSION
    known = [name for name, each in VERSIONS.items() if each.key >= _OLDEST]
    if version not in known:
        raise DockerError(f"--kafka {choice}: the versions to choose are {', '.join(known)}")
    return version


def container_options(version: str, port: int) -> dict[str, Any]:
    """Return the keywords of `docker.containers.run` for a broker that serves at `HOST:port`."""
    ports = Ports({PLAINTEXT: port}, _CONTROLLER_PORT)
    properties = settings.common(VERSIONS[version], 1) | settings.kraft_node(
        1, {1: ports}, Extras()
    )
    # Docker forwards to the container's own address, not to its loopback.
    properties["listeners"] = f"{PLAINTEXT}://:{port},CONTROLLER://:{_CONTROLLER_PORT}"
    return {
        "image": f"apache/kafka:{version}",
        "detach": True,
        "labels": {"org.apache.kafka": "aiokafka tests"},
        "ports": {f"{port}/tcp": (HOST, port)},
        "environment": {variable(name): value for name, value in properties.items()},
    }


def variable(name: str) -> str:
    """Return the variable of which the image makes this property."""
    return "KAFKA_" + name.replace("_", "__").replace("-", "___").replace(".", "_").upper()


def engine() -> Any:
    """Return a client of the docker engine, which answers.

    Raises DockerError if there is none.
    """
    try:
        import docker  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError:
        raise DockerError(
            "--kafka docker needs the package docker: pip install --group docker"
        ) from None
    try:
        client = docker.from_env()
        client.ping()
    except (docker.errors.DockerException, OSError) as error:
        raise DockerError(
            f"--kafka docker: no docker engine answers ({error}); start it, or set DOCKER_HOST"
        ) from None
    return client


class DockerBroker:
    """One container of the image ``apache/kafka`` (needs the ``docker`` package and an engine)."""

    def __init__(self, version: str = DEFAULT_VERSION) -> None:
        self._port = free_port()
        self._options = container_options(version, self._port)
        self._container: Any = None

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self._port}"

    def start(self) -> None:
        """Pull the image if need be, and return when the broker serves."""
        self._container = engine().containers.run(**self._options)
        deadline = time.monotonic() + START_TIMEOUT
        while not self._serves():
            self._container.reload()
            has_ended = self._container.status in ("exited", "dead")
            if has_ended or time.monotonic() > deadline:
                shown = self.logs()
                self.stop()
                raise DockerError(f"{self._options['image']} does not serve\n{shown}")
            time.sleep(0.2)

    def stop(self) -> None:
        """Remove the container with its data."""
        container, self._container = self._container, None
        if container is not None:
            container.remove(force=True, v=True)

    def logs(self, lines: int = 40) -> str:
        return str(self._container.logs(tail=lines).decode(errors="replace"))

    def _serves(self) -> bool:
        with contextlib.suppress(OSError, ValueError):
            view = probe.ask((HOST, self._port), names_controller=True)
            return view.is_complete(frozenset({1}))
        return False
