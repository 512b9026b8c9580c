"""Broker properties that suit tests: little memory, quick start, short sessions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tests.kafka.versions import KafkaVersion

HOST = "127.0.0.1"
PLAINTEXT = "PLAINTEXT"
_CONTROLLER = "CONTROLLER"

Properties = dict[str, str]


@dataclass(frozen=True)
class Ports:
    """Where one node listens: by listener name, and as a controller (KRaft)."""

    listeners: Mapping[str, int]
    controller: int


@dataclass(frozen=True, kw_only=True)
class Extras:
    """What a test may add to a plain cluster.

    listeners: further listeners, name -> security protocol ("SSL", "SASL_PLAINTEXT", ...).
    host: the name that clients are told to connect to (Kerberos wants "localhost").
    advertised: listener -> "host:port" that clients are told instead, such as a proxy's.
    files: written into the cluster's folder before the start.
    classpath: folders or jars put before Kafka's own.
    format_options: arguments for ``StorageTool format`` ("--feature", "group.version=0").
    environment: environment variables of the brokers.

    In property values, JVM options and files of type str, ``{folder}`` is the cluster's folder. In
    property values, ``{node}`` is the number of the node.
    """

    listeners: Mapping[str, str] = field(default_factory=dict)
    host: str = HOST
    advertised: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    classpath: tuple[str, ...] = ()
    format_options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Jvm:
    """How Java runs the brokers; the default is made for a quick start, not for throughput."""

    heap: str = "256m"
    quick_start: bool = True
    options: tuple[str, ...] = ()

    @property
    def arguments(self) -> list[str]:
        quick = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"] if self.quick_start else []
        return [f"-Xmx{self.heap}", *quick, *self.options]


FOR_BENCHMARKS = Jvm(heap="1g", quick_start=False)
# Kafka's own pace: a busy broker must not be taken for a dead one.
PATIENT = {
    "broker.session.timeout.ms": "30000",
    "broker.heartbeat.interval.ms": "2000",
    "controller.quorum.fetch.timeout.ms": "10000",
}


def common(version: KafkaVersion, nodes: int) -> Properties:
    """Settings of every broker, whatever keeps its metadata."""
    copies, in_sync = str(min(nodes, 3)), str(min(nodes, 2))
    settings = {
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": "4",
        "default.replication.factor": copies,
        # The default buffer takes 128 MiB of heap at once.
        "log.cleaner.dedupe.buffer.size": "2097152",
        # Tests choose the times of their records; old ones must not be deleted for it.
        "log.retention.ms": "-1",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "controlled.shutdown.max.retries": "1",
        "group.min.session.timeout.ms": "500",
    }
    if version.key >= (0, 11):
        settings |= {
            "group.initial.rebalance.delay.ms": "0",
            "transaction.state.log.num.partitions": "4",
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": in_sync,
        }
    if version.key >= (3, 7):
        settings |= _group_pace("consumer")
    if version.key >= (4,):
        settings |= _group_pace("share") | {
            "share.coordinator.state.topic.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": in_sync,
            "group.share.min.record.lock.duration.ms": "1000",
        }
    return settings


def _group_pace(kind: str) -> Properties:
    return {
        f"group.{kind}.min.session.timeout.ms": "500",
        f"group.{kind}.session.timeout.ms": "3000",
        f"group.{kind}.min.heartbeat.interval.ms": "50",
        f"group.{kind}.heartbeat.interval.ms": "300",
    }


def kraft_node(node_id: int, ports: Mapping[int, Ports], extras: Extras) -> Properties:
    """Settings of one node that is broker and controller; a dead one is noticed in 2 to 3 s."""
    own = ports[node_id]
    voters = (f"{node}@{HOST}:{listen.controller}" for node, listen in sorted(ports.items()))
    protocols = {_CONTROLLER: PLAINTEXT, PLAINTEXT: PLAINTEXT, **extras.listeners}
    return {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(voters),
        "controller.listener.names": _CONTROLLER,
        "listeners": f"{_addresses(own, HOST)},{_CONTROLLER}://{HOST}:{own.controller}",
        "advertised.listeners": _advertised(own, extras),
        "listener.security.protocol.map": _pairs(protocols),
        "inter.broker.listener.name": PLAINTEXT,
        "broker.session.timeout.ms": "1500",
        "broker.heartbeat.interval.ms": "250",
        "controller.quorum.fetch.timeout.ms": "1000",
        "controller.quorum.election.timeout.ms": "500",
    }


def split_node(
    node_id: int, ports: Mapping[int, Ports], extras: Extras, controllers: Collection[int]
) -> Properties:
    """Settings of one node of a cluster whose controllers are no brokers: it is one or the other.

    The voters are not in the settings, so they can be changed (KIP-853).
    """
    own = kraft_node(node_id, ports, extras)
    del own["controller.quorum.voters"]
    named = (f"{HOST}:{ports[node].controller}" for node in controllers)
    own["controller.quorum.bootstrap.servers"] = ",".join(named)
    if node_id not in controllers:
        return own | {"process.roles": "broker", "listeners": _addresses(ports[node_id], HOST)}
    place = f"{_CONTROLLER}://{HOST}:{ports[node_id].controller}"
    del own["inter.broker.listener.name"]
    own |= {"process.roles": "controller", "listeners": place, "advertised.listeners": place}
    return own


def zookeeper_node(
    node_id: int, ports: Mapping[int, Ports], extras: Extras, zookeeper_port: int
) -> Properties:
    """Settings of one broker that keeps its metadata in ZooKeeper."""
    settings = {
        "broker.id": str(node_id),
        "listeners": _addresses(ports[node_id], HOST),
        "zookeeper.connect": f"{HOST}:{zookeeper_port}",
        "zookeeper.session.timeout.ms": "1500",
        # The default is the session's: too short for a ZooKeeper that is starting, too.
        "zookeeper.connection.timeout.ms": "30000",
    }
    if extras.listeners:
        settings |= {
            "advertised.listeners": _advertised(ports[node_id], extras),
            "listener.security.protocol.map": _pairs({PLAINTEXT: PLAINTEXT, **extras.listeners}),
            "inter.broker.listener.name": PLAINTEXT,
        }
    return settings


def zookeeper(port: int) -> Properties:
    """Settings of the ZooKeeper server itself (``dataDir`` is added by who starts it)."""
    return {
        "clientPort": str(port),
        "clientPortAddress": HOST,
        "tickTime": "500",
        "maxClientCnxns": "0",
        "admin.enableServer": "false",
    }


def render(properties: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def logging_options(version: KafkaVersion) -> tuple[str, str, str]:
    """(file name, its text, JVM option that names it): brokers log warnings to stdout.

    Without a configuration the brokers would be silent, even about why they did not start.
    """
    pattern = "[%d] %p %m (%c)%n"
    if version.uses_log4j2:
        text = render(
            {
                "rootLogger.level": "WARN",
                "rootLogger.appenderRef.out.ref": "OUT",
                "appender.out.type": "Console",
                "appender.out.name": "OUT",
                "appender.out.layout.type": "PatternLayout",
                "appender.out.layout.pattern": pattern,
            }
        )
        return "log4j2.properties", text, "-Dlog4j2.configurationFile={folder}/log4j2.properties"
    text = render(
        {
            "log4j.rootLogger": "WARN, out",
            "log4j.appender.out": "org.apache.log4j.ConsoleAppender",
            "log4j.appender.out.layout": "org.apache.log4j.PatternLayout",
            "log4j.appender.out.layout.ConversionPattern": pattern,
        }
    )
    return "log4j.properties", text, "-Dlog4j.configuration=file:{folder}/log4j.properties"


def _addresses(ports: Ports, host: str) -> str:
    return ",".join(f"{name}://{host}:{port}" for name, port in ports.listeners.items())


def _advertised(ports: Ports, extras: Extras) -> str:
    addresses = {name: f"{extras.host}:{port}" for name, port in ports.listeners.items()}
    addresses |= extras.advertised
    return ",".join(f"{name}://{address}" for name, address in addresses.items())


def _pairs(protocols: Mapping[str, str]) -> str:
    return ",".join(f"{name}:{protocol}" for name, protocol in protocols.items())
