"""Apache's jars, fetched once with Maven into a cache outside the work tree.

The cache is ``~/.cache/aiokafka-tests``; the environment variable ``AIOKAFKA_TEST_CACHE`` moves it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from tests.kafka.versions import VERSIONS, Coordinate

JAVA = 17
FETCH_TIMEOUT = 600.0

# Spark's own Kafka source and sink, with what it needs that Spark does not have itself. These run
# in PySpark 4.2 and 4.3. Not every mirror of Maven Central has every release of every part.
_CONNECTOR: tuple[Coordinate, ...] = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.1.0-preview1"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)


class MissingToolsError(RuntimeError):
    """Java 17 or Maven is not installed; the message says what to install."""


class FetchError(RuntimeError):
    """Maven could not fetch the jars."""


def cache_folder() -> Path:
    """Where jars and class archives are kept."""
    chosen = os.environ.get("AIOKAFKA_TEST_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "aiokafka-tests"


@lru_cache(maxsize=1)
def java_version() -> str:
    """Full version text of the ``java`` on the path ("" if there is none)."""
    if shutil.which("java") is None:
        return ""
    shown = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "([^"]+)"', shown.stderr + shown.stdout)
    return found.group(1) if found else ""


def missing_tools() -> str:
    """What to install before a real broker can run, as one sentence; "" if all is there."""
    missing = []
    version = java_version()
    if not version or int(version.split(".")[0]) < JAVA:
        missing.append(f"Java {JAVA} or later (Debian: openjdk-{JAVA}-jre-headless)")
    if shutil.which("mvn") is None:
        missing.append("Maven (Debian: maven)")
    return "install " + " and ".join(missing) if missing else ""


def fetch_broker_jars(version: str) -> Path:
    """Folder with every jar that this Kafka version needs to run."""
    return _fetch(f"kafka-{version}", VERSIONS[version].dependencies)


def fetch_clients_jar(version: str) -> Path:
    """The kafka-clients jar of any released version (3.9.2, 4.3.1, ...)."""
    coordinate = ("org.apache.kafka", "kafka-clients", version)
    folder = _fetch(f"clients-{version}", [coordinate], alone=True)
    return folder / f"kafka-clients-{version}.jar"


def fetch_tools_jar(version: str) -> Path:
    """Return the jar of Kafka's command-line tools; they need the jars of the broker too."""
    coordinate = ("org.apache.kafka", "kafka-tools", version)
    return _fetch(f"tools-{version}", [coordinate], alone=True) / f"kafka-tools-{version}.jar"


def fetch_connector_jars() -> list[Path]:
    """The jars of Spark's own `kafka` format, for `start_spark(jars=...)`."""
    folder = _fetch(f"connector-{_CONNECTOR[0][2]}", _CONNECTOR, alone=True)
    return sorted(folder.glob("*.jar"))


def _fetch(name: str, coordinates: Iterable[Coordinate], *, alone: bool = False) -> Path:
    pom = _render_pom(coordinates, alone=alone)
    folder = cache_folder() / "jars" / f"{name}-{hashlib.sha256(pom.encode()).hexdigest()[:8]}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder.parent / "fetch.lock"):
            if not folder.is_dir():
                _run_maven(pom, folder)
    return folder


def _render_pom(coordinates: Iterable[Coordinate], *, alone: bool) -> str:
    """A pom that names the coordinates; ``alone`` leaves out what they depend on themselves."""
    exclude_all = (
        "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId>"
        "</exclusion></exclusions>"
    )
    rows = [
        f"    <dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>"
        # Of the helpers only the jar itself is wanted, in the version that is written here.
        f"{exclude_all if alone or group != 'org.apache.kafka' else ''}</dependency>"
        for group, artifact, version in coordinates
    ]
    return "\n".join(
        [
            "<project>",
            "  <modelVersion>4.0.0</modelVersion>",
            "  <groupId>tests</groupId>",
            "  <artifactId>kafka-jars</artifactId>",
            "  <version>1</version>",
            "  <dependencies>",
            *rows,
            "  </dependencies>",
            "</project>",
            "",
        ]
    )


def _run_maven(pom: str, folder: Path) -> None:
    missing = missing_tools()
    if missing:
        raise MissingToolsError(missing)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetch-") as scratch:
        pom_file = Path(scratch, "pom.xml")
        pom_file.write_text(pom)
        jars = Path(scratch, "jars")
        command = ["mvn", "-q", "-B", "-f", str(pom_file), "dependency:copy-dependencies"]
        done = subprocess.run(
            [*command, f"-DoutputDirectory={jars}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=FETCH_TIMEOUT,
        )
        if done.returncode or not any(jars.glob("*.jar")):
            raise FetchError(f"Maven could not fetch {folder.name}:\n{done.stdout[-4000:]}")
        jars.rename(folder)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold a lock on a file; it ends with the process, however that ends."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
