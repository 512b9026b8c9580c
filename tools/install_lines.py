"""The install commands of README, manual and examples, each for a checkout and for a wheel.

Every command names the checkout or the exact version, because the package index has another package
of the same name. The index does not have this version, so a command without its wheel fails instead
of installing that other package.
"""

from __future__ import annotations

import runpy
from pathlib import Path

__all__ = ["VERSION", "console", "image"]

ROOT = Path(__file__).resolve().parent.parent
VERSION: str = runpy.run_path(str(ROOT / "aiokafka" / "_version.py"))["__version__"]


def console(extras: str = "", more: str = "") -> list[str]:
    """Return the shell commands. `extras` are separated by commas; `more` names other packages."""
    checkout = f'".[{extras}]"' if extras else "."
    wheel = f'"aiokafka{f"[{extras}]" if extras else ""}=={VERSION}"'
    lines = {
        f"pip install {checkout} {more}": "in a checkout of the repository",
        f"pip install --find-links dist {wheel} {more}": "from a wheel that `make dist` built",
    }
    width = max(len(line.rstrip()) for line in lines)
    return [f"{line.rstrip():<{width}}   # {why}" for line, why in lines.items()]


def image(extras: str = "") -> list[str]:
    """Return the lines of a Dockerfile that has `dist` beside it."""
    extra = f"[{extras}]" if extras else ""
    return ["COPY dist /dist", f'RUN pip install --find-links /dist "aiokafka{extra}=={VERSION}"']
