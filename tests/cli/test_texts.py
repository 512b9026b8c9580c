"""Bytes of the command line that are no text, and texts that the terminal cannot show."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from aiokafka.cli.formats import as_bytes
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


def test_what_is_sent_does_not_depend_on_who_reads_stderr(cli: Cli) -> None:
    cli.served.topic("lines")
    command = [sys.executable, "-m", "aiokafka", "produce", "lines", "--progress"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(cli.served)
    ) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stderr.close()
        for number in range(20):
            process.stdin.write(b"%d\n" % number)
            process.stdin.flush()
            time.sleep(0.1)  # progress is shown twice a second
        process.stdin.close()
    assert process.returncode == 0
    assert cli.served.values("lines") == [b"%d" % number for number in range(20)]


def test_an_exit_code_does_not_depend_on_who_reads_stderr(cli: Cli) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "aiokafka", "topics", "describe", "nope"]
    with open(writer, "wb") as stderr:
        done = subprocess.run(command, stderr=stderr, env=environment(cli.served), check=False)
    assert done.returncode == 5
