"""The codecs that come with the package are those that would be written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from aiokafka.protocol._source import written_ahead
from aiokafka.protocol.messages import MetadataRequest
from tests.house.codecs import FOLDER, texts


@pytest.mark.parametrize(("path", "text"), texts().items(), ids=[path.stem for path in texts()])
def test_they_are_up_to_date(path: Path, text: str) -> None:
    assert path.read_text() == text, "run: python -m tests.house.codecs"


def test_there_are_no_others() -> None:
    assert set(FOLDER.glob("[a-z]*.py")) == set(texts())


def test_only_the_newest_version_has_one() -> None:
    newest = MetadataRequest.VERSIONS[1]
    name = f"encode_MetadataRequest_v{newest}"
    assert written_ahead(name, MetadataRequest, newest) is not None
    assert written_ahead(name, MetadataRequest, newest - 1) is None


def test_programs_without_them_work() -> None:
    """As those that were frozen, with the modules that imports name."""
    program = (
        "import sys\n"
        "sys.modules['aiokafka.protocol._ahead'] = None\n"
        "from aiokafka.protocol.compiler import codec\n"
        "from aiokafka.protocol.messages import MetadataRequest as Request\n"
        "newest = Request.VERSIONS[1]\n"
        "assert codec(Request, newest).encode_bytes(Request(topics=None))\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_they_are_used() -> None:
    program = (
        "import builtins, sys\n"
        "from aiokafka.protocol.compiler import codec\n"
        "from aiokafka.protocol.messages import MetadataRequest as Request\n"
        "from aiokafka.protocol.messages import MetadataResponse as Response\n"
        "request, response = Request(topics=None), Response(brokers=[], topics=[])\n"
        "newest = Request.VERSIONS[1]\n"
        "data = codec(Response, newest).encode_bytes(response)\n"
        "def refuse(*args): raise AssertionError(args)\n"
        "builtins.compile = refuse\n"
        "codec(Request, newest).encode_bytes(request)\n"
        "assert codec(Response, newest).decode(data) == response\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
