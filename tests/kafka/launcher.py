"""`KafkaCluster`: one to three real brokers on this machine, from Apache's own jars."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import shutil
import socket
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

from tests.kafka import jars, probe, settings
from tests.kafka.guard import guard
from tests.kafka.processes import JavaProcess, free_port
from tests.kafka.settings import HOST, PLAINTEXT, Extras, Jvm, Ports
from tests.kafka.versions import DEFAULT_VERSION, VERSIONS

START_TIMEOUT = 90.0
_POLL = 0.05
_ARCHIVE_GRACE = 30.0
_CONNECT_TIMEOUT = 5.0
_ZOOKEEPER_TIMEOUT = 1.0


class BrokerStartError(RuntimeError):
    """A process ended or did not serve in time; the message holds the end of its log."""


class KafkaCluster:
    """Real brokers, numbered from 1, that live until `stop` (or the end of this process).

    Methods block; call them through ``asyncio.to_thread`` where a loop must go on. Only processes
    that this object started are ever ended.

    version: a key of `tests.kafka.versions.VERSIONS`. mode: "kraft" or "zk" (default: the first
    that the version has). controllers: how many nodes are controllers and no brokers, numbered
    after those; the first of them is the only voter. config: broker properties, on top of
    `settings`. jvm: memory and speed. extras: listeners, files and options for tests of security
    and of plug-ins.
    """

    def __init__(
        self,
        version: str = DEFAULT_VERSION,
        *,
        nodes: int = 1,
        controllers: int = 0,
        mode: str | None = None,
        config: Mapping[str, str] | None = None,
        jvm: Jvm | None = None,
        extras: Extras | None = None,
    ) -> None:
        self.version = VERSIONS[version]
        self.mode = mode or self.version.modes[0]
        if self.mode not in self.version.modes:
            raise ValueError(f"mode: Kafka {version} runs as {' or '.join(self.version.modes)}")
        if self.mode == "kraft" and nodes > self.version.max_nodes:
            raise ValueError(f"nodes: Kafka {version} has at most {self.version.max_nodes}")
        self.nodes = range(1, nodes + 1)
        self.controllers = range(nodes + 1, nodes + 1 + controllers)
        self._config = dict(config or {})
        self._jvm = jvm or Jvm()
        self._extras = extras or Extras()
        self._folder: Path | None = None
        self._ports: dict[int, Ports] = {}
        self._zookeeper_port = 0
        self._processes: dict[str, JavaProcess] = {}
        self._recorded: Path | None = None

    # -- life

    def __enter__(self) -> KafkaCluster:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def start(self, timeout: float = START_TIMEOUT) -> None:
        """Return when every broker names all of them and a controller.

        Fetches the jars first if they are not in the cache, which takes as long as it takes.
        """
        if missing := jars.missing_tools():
            raise jars.MissingToolsError(missing)
        jars.fetch_broker_jars(self.version.number)
        self._folder = Path(tempfile.mkdtemp(prefix=f"kafka-{self.version.number}-"))
        guard.add_folder(self._folder)
        try:
            self._prepare()
            if self.mode == "kraft":
                self._format(timeout)
            else:
                self._start_zookeeper(timeout)
            for node in (*self.nodes, *self.controllers):
                self._start_broker(node)
            self.wait_ready(timeout)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill what still runs and remove the data. Does nothing the second time."""
        if self._recorded is not None and self._processes:
            self._keep_archive()
        for process in self._processes.values():
            process.kill()
        self._processes.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def kill(self, node: int) -> None:
        """End one broker as a crash would (SIGKILL)."""
        self._processes[_name(node)].kill()

    def terminate(self, node: int, grace: float = 30.0) -> None:
        """Let one broker shut down in order: it hands its leaders over first."""
        self._processes[_name(node)].terminate(grace)

    def restart(self, node: int, timeout: float = START_TIMEOUT) -> None:
        """Start a broker that was ended, with its data, and wait until it serves again."""
        if self._processes[_name(node)].is_alive:
            raise RuntimeError(f"node {node} is running")
        self._start_broker(node)
        self.wait_ready(timeout)

    def wait_ready(self, timeout: float = START_TIMEOUT) -> None:
        """Return when every running broker names all running ones and a controller."""
        deadline = time.monotonic() + timeout
        alive = frozenset(node for node in self.nodes if self.is_alive(node))
        for node in sorted(alive):
            while not self._serves(node, alive):
                process = self._processes[_name(node)]
                if not process.is_alive or time.monotonic() > deadline:
                    raise BrokerStartError(self._describe_failure(node, process))
                time.sleep(_POLL)

    # -- questions

    @property
    def bootstrap_servers(self) -> str:
        return self.addresses(PLAINTEXT)

    @property
    def folder(self) -> Path:
        assert self._folder is not None, "the cluster is not running"
        return self._folder

    @property
    def bootstrap_controllers(self) -> str:
        """Where the controllers are: separate ones, or the brokers themselves."""
        nodes = self.controllers or self.nodes
        return ",".join(f"{HOST}:{self._ports[node].controller}" for node in nodes)

    def addresses(self, listener: str) -> str:
        """Bootstrap servers of one listener by name."""
        return ",".join(
            f"{self._extras.host}:{self._ports[node].listeners[listener]}" for node in self.nodes
        )

    def is_alive(self, node: int) -> bool:
        process = self._processes.get(_name(node))
        return process is not None and process.is_alive

    def pid(self, node: int) -> int:
        return self._processes[_name(node)].pid

    def logs(self, lines: int = 40) -> str:
        """The last lines that each process wrote."""
        return "\n".join(
            f"--- Kafka {self.version.number} {name}\n{process.log_tail(lines)}"
            for name, process in self._processes.items()
        )

    # -- parts

    def _prepare(self) -> None:
        names = (PLAINTEXT, *self._extras.listeners)
        self._ports = {
            node: Ports({name: free_port() for name in names}, free_port())
            for node in (*self.nodes, *self.controllers)
        }
        self._zookeeper_port = free_port()
        log_file, log_text, _option = settings.logging_options(self.version)
        for name, content in {log_file: log_text, **self._extras.files}.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(
                content if isinstance(content, bytes) else self._fill(content).encode()
            )
        for node in self._ports:
            folder = self._node_folder(node)
            folder.mkdir()
            own = {"log.dirs": str(folder / "data"), **self._node_settings(node), **self._config}
            own = {name: self._fill(value, node) for name, value in own.items()}
            (folder / "server.properties").write_text(settings.render(own))

    def _node_settings(self, node: int) -> dict[str, str]:
        common = settings.common(self.version, len(self.nodes))
        if self.controllers:
            return common | settings.split_node(node, self._ports, self._extras, self.controllers)
        if self.mode == "kraft":
            return common | settings.kraft_node(node, self._ports, self._extras)
        port = self._zookeeper_port
        return common | settings.zookeeper_node(node, self._ports, self._extras, port)

    def _format(self, timeout: float) -> None:
        cluster = base64.urlsafe_b64encode(uuid.UUID(int=uuid.uuid4().int >> 1).bytes)
        cluster_id = cluster.decode().rstrip("=")
        tools = []
        for node in self._ports:
            folder = self._node_folder(node)
            arguments = ["kafka.tools.StorageTool", "format", "-t", cluster_id]
            arguments += ["-c", str(folder / "server.properties"), *self._extras.format_options]
            if self.controllers:
                is_voter = node == self.controllers[0]
                arguments.append("--standalone" if is_voter else "--no-initial-controllers")
            command = [*self._java(self._jvm.arguments), *arguments]
            tools.append(JavaProcess(command, folder / "format.log"))
        for tool in tools:
            if tool.wait(timeout):
                raise BrokerStartError(f"could not format the storage:\n{tool.log_tail()}")

    def _start_zookeeper(self, timeout: float) -> None:
        folder = self.folder / "zookeeper"
        folder.mkdir()
        own = settings.zookeeper(self._zookeeper_port) | {"dataDir": str(folder / "data")}
        (folder / "zoo.cfg").write_text(settings.render(own))
        options = ["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = [*self._java(options), main, str(folder / "zoo.cfg")]
        process = self._processes["zookeeper"] = JavaProcess(command, folder / "server.log")
        # It takes connections before it has its data, and forgets some of them: a broker whose
        # connection that is waits until it gives up.
        deadline = time.monotonic() + timeout
        while not self._zookeeper_serves():
            if not process.is_alive or time.monotonic() > deadline:
                raise BrokerStartError(f"ZooKeeper does not serve:\n{process.log_tail()}")
            time.sleep(_POLL)

    def _zookeeper_serves(self) -> bool:
        place = (HOST, self._zookeeper_port)
        try:
            with socket.create_connection(place, _ZOOKEEPER_TIMEOUT) as connection:
                connection.sendall(b"srvr")
                with connection.makefile("rb") as answer:
                    return b"Mode: " in answer.read()
        except OSError:
            return False

    def _start_broker(self, node: int) -> None:
        folder = self._node_folder(node)
        command = [*self._java(self._jvm.arguments, record=node == 1), "kafka.Kafka"]
        command.append(str(folder / "server.properties"))
        environment = {k: self._fill(v) for k, v in self._extras.environment.items()}
        process = JavaProcess(command, folder / "server.log", environment)
        self._processes[_name(node)] = process

    def _java(self, options: list[str], *, record: bool = False) -> list[str]:
        libraries = jars.fetch_broker_jars(self.version.number)
        _file, _text, log_option = settings.logging_options(self.version)
        classpath = ":".join([*map(self._fill, self._extras.classpath), f"{libraries}/*"])
        flags = [*options, log_option, "-Djava.awt.headless=true"]
        if (1,) <= self.version.key < (2, 4):
            flags.append("-Dzookeeper.jmx.log4j.disable=true")
        archive = [self._archive_flag(record)] if self._may_share_classes else []
        return [*archive, *map(self._fill, flags), "-cp", classpath]

    # -- the class archive: a broker of the newest version starts in half the time with it

    @property
    def _may_share_classes(self) -> bool:
        plain = self._jvm == Jvm() and not self._extras.classpath
        return plain and self.version.number == DEFAULT_VERSION

    def _archive_flag(self, record: bool) -> str:
        digest = hashlib.sha256(jars.java_version().encode()).hexdigest()[:8]
        archives = jars.cache_folder() / "archives"
        archive = archives / f"{self.version.number}-{digest}.jsa"
        if archive.exists():
            return f"-XX:SharedArchiveFile={archive}"
        if not record:
            return "-Xshare:auto"
        archives.mkdir(parents=True, exist_ok=True)
        self._recorded = archive
        return f"-XX:ArchiveClassesAtExit={self.folder / 'classes.jsa'}"

    def _keep_archive(self) -> None:
        """The first broker of a version ends in order once, because it then writes the archive."""
        assert self._recorded is not None
        self._processes[_name(1)].terminate(_ARCHIVE_GRACE)
        made = self.folder / "classes.jsa"
        if made.exists() and made.stat().st_size:
            part = self._recorded.with_suffix(f".{uuid.uuid4().hex}")
            with contextlib.suppress(OSError):
                shutil.copyfile(made, part)
                part.rename(self._recorded)
        self._recorded = None

    # -- helpers

    def _serves(self, node: int, expected: frozenset[int]) -> bool:
        listeners = self._ports[node].listeners
        try:
            view = probe.ask(
                (HOST, listeners[PLAINTEXT]), names_controller=self.version.key >= (0, 10)
            )
            if not view.is_complete(expected):
                return False
            # A broker opens its listeners one after another: the first that serves says nothing
            # of the others.
            for port in listeners.values():
                socket.create_connection((HOST, port), _CONNECT_TIMEOUT).close()
        except (OSError, ValueError):
            return False
        return True

    def _describe_failure(self, node: int, process: JavaProcess) -> str:
        state = "does not serve" if process.is_alive else "ended"
        return f"Kafka {self.version.number} node {node} {state}\n{self.logs()}"

    def _node_folder(self, node: int) -> Path:
        return self.folder / _name(node)

    def _fill(self, text: str, node: int | str = "") -> str:
        return text.replace("{folder}", str(self.folder)).replace("{node}", str(node))


def _name(node: int) -> str:
    return f"node-{node}"
