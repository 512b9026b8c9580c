"""Run an example as a user does: as a script, in an interpreter of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from functools import partial
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent.parent
EXAMPLES = REPOSITORY / "examples"

HEED_SIGINT = (
    None if sys.platform == "win32" else partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
)


async def start_script(name: str, *arguments: str) -> asyncio.subprocess.Process:
    """Begin to run an example; SIGINT interrupts it, though a shell that runs the tests in the
    background has them ignore it."""
    path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        str(EXAMPLES / name),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path, "BOOTSTRAP": ""},
        preexec_fn=HEED_SIGINT,
    )


async def end_of(process: asyncio.subprocess.Process) -> tuple[str, str]:
    """What it printed, and what it complained of, once it has ended."""
    try:
        output, errors = await asyncio.wait_for(process.communicate(), 50)
    except BaseException:
        process.kill()
        await process.wait()
        raise
    return output.decode().replace("\r\n", "\n"), errors.decode()


def unexpected(errors: str) -> list[str]:
    """Return the lines but the one about a topic that brokers create when it is asked for."""
    return [line for line in errors.splitlines() if "The brokers may be creating it" not in line]


async def run_script(name: str, *arguments: str) -> str:
    """Run an example to its end; return what it printed."""
    process = await start_script(name, *arguments)
    output, errors = await end_of(process)
    assert process.returncode == 0, errors
    assert not unexpected(errors), errors
    return output
