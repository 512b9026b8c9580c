"""Bytes of the command line that are no text, and texts that the terminal cannot show."""

from __future__ import annotations

import os
import subprocess
import sys

from aiokafka.cli.lines import as_bytes
from tests.cli.support import Cli, environment


def test_arguments_need_not_be_utf8(cli: Cli) -> None:
    cli.served.topic("bytes")
    command = [sys.executable, "-m", "aiokafka", "produce", "bytes"]
    done = subprocess.run(
        [*map(os.fsencode, command), b"-k", b"\xff", b"-D", b"\xfe", b"-H", b"h=\xfd"],
        input=b"one\xfetwo\xfe",
        env=environment(cli.served),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")

    async def read() -> list[tuple[bytes | None, bytes | None, object]]:
        found = cli.served.cluster.log("bytes", 0).records()
        return [(each.key, each.value, list(each.headers)) for each in found]

    headers = [("h", b"\xfd")]
    assert cli.served.run(read()) == [(b"\xff", b"one", headers), (b"\xff", b"two", headers)]


def test_escapes_may_stand_beside_other_bytes() -> None:
    assert as_bytes("\\t\udcff\\n") == b"\t\xff\n"
    assert as_bytes("\\x80\udcff") == b"\x80\xff"
    assert as_bytes("\\\udcff") == b"\xff"


def test_letters_that_stdout_lacks_are_escaped(cli: Cli) -> None:
    cli.served.topic("orders")
    cli("groups", "set-offsets", "grüße", "orders-0=0", "--yes")
    for form, line in (("table", "gr\\xfc\\xdfe  CLASSIC"), ("csv", "gr\\xfc\\xdfe,CLASSIC")):
        done = subprocess.run(
            [sys.executable, "-m", "aiokafka", "groups", "list", "--output", form],
            env=environment(cli.served, PYTHONIOENCODING="ascii"),
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert line in done.stdout
    assert cli("groups", "list", "--output", "csv").out.splitlines()[1].startswith("grüße,")
