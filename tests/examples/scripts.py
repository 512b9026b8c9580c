"""Run an example as a user does: as a script, in an interpreter of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent.parent
EXAMPLES = REPOSITORY / "examples"


async def run_script(name: str, *arguments: str) -> str:
    """Run an example to its end; return what it printed."""
    path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        str(EXAMPLES / name),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path, "BOOTSTRAP": ""},
    )
    try:
        output, errors = await asyncio.wait_for(process.communicate(), 50)
    except BaseException:
        process.kill()
        await process.wait()
        raise
    assert process.returncode == 0, errors.decode()
    assert not errors, errors.decode()
    return output.decode().replace("\r\n", "\n")
