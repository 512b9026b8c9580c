"""What a beginner sees first: no broker listens, and each example says so in one line."""

from __future__ import annotations

import logging
import runpy
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.examples.scripts import EXAMPLES, end_of, start_script

NOWHERE = "127.0.0.1:1"
# These bring their own brokers, or belong to a framework or to pytest.
WITHOUT = {
    "first.py",
    "simulated_service.py",
    "guides/fastapi_app.py",
    "guides/faststream_app.py",
    "guides/schemas_faststream.py",
    "tutorial/test_service.py",
}
SECRETS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "CLIENT_SECRET",
    "KAFKA_PASSWORD",
    "SASL_PASSWORD",
    "SASL_USERNAME",
)
FOLDERS = ("", "guides", "spark", "tutorial")
PROGRAMS = sorted(
    name
    for folder in FOLDERS
    for path in (EXAMPLES / folder).glob("*.py")
    if (name := path.relative_to(EXAMPLES).as_posix()) not in WITHOUT
)
NEEDS = {
    "kerberos.py": "gssapi",
    "guides/to_delta.py": "deltalake",
    "guides/to_iceberg.py": "pyiceberg",
    "guides/to_parquet.py": "pyarrow",
}


def program(name: str) -> Any:
    """Return a parameter of the test, skipped where a package is missing."""
    package = "pyspark" if name.startswith("spark/") else NEEDS.get(name, "asyncio")
    is_missing = find_spec(package) is None
    return pytest.param(name, marks=pytest.mark.skipif(is_missing, reason=f"no {package}"))


def arguments(name: str, folder: Path) -> list[str]:
    """Return what the program has to be given."""
    password = folder / "password"
    password.write_text("secret")
    given = {
        "delegation_token.py": ["--user", "alice"],
        "oidc.py": ["--token-endpoint", "https://127.0.0.1:1/", "--client-id", "it"],
        "sasl_scram.py": ["--user", "alice", "--password-file", str(password)],
        "msk_iam.py": ["--region", "eu-west-1"],
        "guides/into_a_database.py": ["--database", str(folder / "events.db")],
        "guides/outbox.py": ["--database", str(folder / "orders.db")],
        "guides/large_messages.py": ["--store", str(folder / "values")],
        "guides/to_delta.py": ["--table", str(folder / "delta")],
        "guides/to_iceberg.py": ["--warehouse", str(folder)],
        "guides/to_parquet.py": ["--folder", str(folder / "lake")],
        "local_state_consumer.py": ["--folder", str(folder)],
        "own_offsets.py": ["--state", str(folder / "counts.json")],
        "guides/providers.py": ["redpanda"],
        "tutorial/place.py": ["3"],
        "tutorial/service.py": ["one"],
    }.get(name, [])
    if name.startswith("tutorial/") or name == "guides/providers.py":
        return given
    return ["--bootstrap", NOWHERE, *given]


@pytest.fixture(autouse=True)
def logging_stays_as_it_is() -> Iterator[None]:
    """Take back what programs that run in this process set."""
    root = logging.getLogger()
    known = [root, *(logging.getLogger(name) for name in sorted(root.manager.loggerDict))]
    before = [(logger, logger.level, logger.handlers[:]) for logger in known]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers


@pytest.mark.parametrize("name", [program(name) for name in PROGRAMS])
def test_that_nothing_listens_is_said_in_one_line(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    for variable in ("AIOKAFKA_BOOTSTRAP_SERVERS", "BOOTSTRAP"):
        monkeypatch.setenv(variable, NOWHERE)
    for variable in SECRETS:
        monkeypatch.setenv(variable, "secret")
    monkeypatch.setattr(sys, "argv", [name, *arguments(name, tmp_path)])
    monkeypatch.syspath_prepend(str((EXAMPLES / name).parent))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    # A text as the code of the exit is printed by Python, and the code is 1 then.
    code = ended.value.code
    line = code if isinstance(code, str) else capsys.readouterr().err.strip()
    assert isinstance(code, str) or code == 1
    assert "\n" not in line
    assert NOWHERE in line and "no process listens on this port" in line
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("name", ["producer.py", "consumer.py"])
async def test_a_wrong_port_is_all_that_is_printed(name: str) -> None:
    process = await start_script(name, "--bootstrap", NOWHERE)
    output, errors = await end_of(process)
    assert process.returncode == 1
    assert output == ""
    (line,) = errors.splitlines()
    assert line.startswith("KafkaConnectionError: Unable to bootstrap from 127.0.0.1:1")
