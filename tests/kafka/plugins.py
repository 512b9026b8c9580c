"""Plug-ins of brokers and programs, compiled from the Java files beside this one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.kafka import jars
from tests.kafka.versions import DEFAULT_VERSION

_COMPILE_TIMEOUT = 120.0


def missing_compiler() -> str:
    """What to install before a plug-in can be compiled; "" if all is there."""
    return "" if shutil.which("javac") else f"install a JDK (Debian: openjdk-{jars.JAVA}-jdk)"


def compile_plugin(name: str, folder: Path) -> str:
    """Compile the class `name` into `folder`, for Kafka's default version. Return the class path
    for Java."""
    return compile_class(Path(__file__).with_name(f"{name}.java"), folder)


def compile_class(source: Path, folder: Path) -> str:
    """Compile a Java file as `compile_plugin()` does."""
    libraries = jars.fetch_broker_jars(DEFAULT_VERSION)
    command = ["javac", "-cp", f"{libraries}/*", "-d", str(folder), str(source)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=_COMPILE_TIMEOUT
    )
    if done.returncode:
        raise RuntimeError(f"{source.name} cannot be compiled:\n{done.stdout}{done.stderr}")
    return f"{folder}:{libraries}/*"
