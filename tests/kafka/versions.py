"""What each Kafka version needs to run on Java 17 from its Maven jars."""

from __future__ import annotations

from dataclasses import dataclass

Coordinate = tuple[str, str, str]

ZK_LOG4J_FLAG = "-Dzookeeper.jmx.log4j.disable=true"

_LOG4J_1: tuple[Coordinate, ...] = (
    ("org.slf4j", "slf4j-reload4j", "1.7.36"),
    ("ch.qos.reload4j", "reload4j", "1.2.25"),
)
_LOG4J_2: tuple[Coordinate, ...] = (
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
    ("org.apache.logging.log4j", "log4j-api", "2.25.4"),
    ("org.apache.logging.log4j", "log4j-core", "2.25.4"),
)
# Java 11 dropped javax.xml.bind, with which 0.10 and 0.11 print the cluster id.
_JAXB: Coordinate = ("javax.xml.bind", "jaxb-api", "2.3.1")
# 3.4.13 and 3.4.14 cannot parse an address on Java 14 and later (ZOOKEEPER-3779).
_ZOOKEEPER: Coordinate = ("org.apache.zookeeper", "zookeeper", "3.4.12")


@dataclass(frozen=True)
class KafkaVersion:
    """One release: its number, the Scala build it is taken from, and how it can be run.

    ``modes`` holds "kraft" and/or "zk"; the first is the default. ``max_nodes`` limits KRaft
    clusters (the early access release cannot form a quorum).
    """

    number: str
    scala: str
    modes: tuple[str, ...]
    max_nodes: int = 3

    @property
    def key(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.number.split("."))

    @property
    def dependencies(self) -> tuple[Coordinate, ...]:
        """Maven coordinates of the broker and of what else it needs here."""
        extra: tuple[Coordinate, ...] = ()
        if (0, 10) <= self.key < (1,):
            extra += (_JAXB,)
        if (2, 0) <= self.key < (2, 4):
            extra += (_ZOOKEEPER,)
        if (1,) <= self.key < (4,):
            extra += _LOG4J_1
        elif self.key >= (4,):
            extra += _LOG4J_2
        return (("org.apache.kafka", f"kafka_{self.scala}", self.number), *extra)

    @property
    def uses_log4j2(self) -> bool:
        return self.key >= (4,)


_ZK = ("zk",)
_KRAFT = ("kraft",)

VERSIONS: dict[str, KafkaVersion] = {
    version.number: version
    for version in (
        KafkaVersion("0.9.0.1", "2.11", _ZK),
        KafkaVersion("0.10.0.1", "2.11", _ZK),
        KafkaVersion("0.10.2.2", "2.11", _ZK),
        KafkaVersion("0.11.0.3", "2.11", _ZK),
        KafkaVersion("1.0.2", "2.12", _ZK),
        KafkaVersion("1.1.1", "2.12", _ZK),
        KafkaVersion("2.0.1", "2.12", _ZK),
        KafkaVersion("2.1.1", "2.12", _ZK),
        KafkaVersion("2.2.2", "2.12", _ZK),
        KafkaVersion("2.3.1", "2.12", _ZK),
        KafkaVersion("2.4.1", "2.13", _ZK),
        KafkaVersion("2.5.1", "2.13", _ZK),
        KafkaVersion("2.6.3", "2.13", _ZK),
        KafkaVersion("2.7.2", "2.13", _ZK),
        KafkaVersion("2.8.2", "2.13", ("zk", "kraft"), max_nodes=1),
        KafkaVersion("3.0.2", "2.13", _ZK),
        KafkaVersion("3.3.2", "2.13", _KRAFT),
        KafkaVersion("3.6.2", "2.13", _KRAFT),
        KafkaVersion("3.9.2", "2.13", ("kraft", "zk")),
        KafkaVersion("4.0.2", "2.13", _KRAFT),
        KafkaVersion("4.1.1", "2.13", _KRAFT),
        KafkaVersion("4.2.1", "2.13", _KRAFT),
        KafkaVersion("4.3.1", "2.13", _KRAFT),
        KafkaVersion("4.4.0", "2.13", _KRAFT),
    )
}

# The release of every test that names none. Kafka 4.4.0 is among GENERATIONS, and tests of its own
# features name it: the answers of the fake cluster are compared with those of 4.3.
DEFAULT_VERSION = "4.3.1"

# One release of each protocol generation: what a run of the whole suite goes through.
GENERATIONS: tuple[tuple[str, str], ...] = (
    ("0.9.0.1", "zk"),
    ("0.10.2.2", "zk"),
    ("0.11.0.3", "zk"),
    ("1.1.1", "zk"),
    ("2.1.1", "zk"),
    ("2.8.2", "zk"),
    ("2.8.2", "kraft"),
    ("3.9.2", "kraft"),
    ("3.9.2", "zk"),
    ("4.0.2", "kraft"),
    ("4.4.0", "kraft"),
)

ALL_RUNS: tuple[tuple[str, str], ...] = tuple(
    (version.number, mode) for version in VERSIONS.values() for mode in version.modes
)
