"""The public address of this checkout's repository, and the links that are derived from it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

__all__ = ["address", "links"]

ROOT = Path(__file__).resolve().parent.parent
_HTTP = re.compile(r"https?://(?:[^@/]*@)?(?P<place>[^@\s?#]+)")
_SSH = re.compile(r"(?:ssh://)?(?:[^@/\s]+@)?(?P<host>[\w.-]+\.[a-z]+)[:/](?P<path>[^\s:]+)")


def address() -> str:
    """Return the https address of the repository, or "" if there is no public one.

    The environment variable AIOKAFKA_REPOSITORY_URL is preferred, then git's remote `origin`, then
    the metadata of a source distribution. User names, passwords and tokens are removed.
    """
    given = os.environ.get("AIOKAFKA_REPOSITORY_URL") or _origin()
    return public(given) or _from_metadata()


def public(url: str) -> str:
    """Return the https form of a git address; "" for a path and for anything else."""
    text = url.strip().removesuffix("/").removesuffix(".git")
    if found := _HTTP.fullmatch(text):
        return f"https://{found['place']}"
    if found := _SSH.fullmatch(text):
        return f"https://{found['host']}/{found['path']}"
    return ""


def links(url: str) -> dict[str, str]:
    """Return the links of the package's metadata by label; {} without an address."""
    if not url:
        return {}
    return {
        "Source": url,
        "Documentation": f"{url}/tree/main/docs",
        "Changelog": f"{url}/blob/main/CHANGES.rst",
        "Issues": f"{url}/issues",
        "Security": f"{url}/blob/main/SECURITY.md",
    }


def _origin() -> str:
    if not (ROOT / ".git").exists():
        return ""  # a source distribution inside another repository
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), "remote", "get-url", "origin"], capture_output=True, text=True
        )
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""


def _from_metadata() -> str:
    metadata = ROOT / "PKG-INFO"
    if not metadata.exists():
        return ""
    found = re.search(r"^Project-URL: Source, (\S+)$", metadata.read_text(), re.MULTILINE)
    return found[1] if found else ""
