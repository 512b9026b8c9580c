"""Generated codecs are used for the newest versions, and are not needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from aiokafka.protocol.compiler import GENERATED, generated, generated_versions
from aiokafka.protocol.messages import APIS, MetadataRequest, request_class
from aiokafka.testing.versions import RELEASES, profile
from tools.generate_codecs import FOLDER, texts

# Later versions are for requests of brokers to each other.
LAST_OF_CLIENTS = {"AddPartitionsToTxn": 3}


def test_the_build_has_generated_what_the_messages_of_today_need() -> None:
    """A checkout whose messages have changed would run with codecs of the former ones."""
    there = {path: path.read_text() for path in FOLDER.glob("*.p*") if path.is_file()}
    assert there in ({}, texts()), "run: make"


def test_every_message_of_a_role_has_codecs() -> None:
    for api_key, (_, api) in APIS.items():
        request = request_class(api_key)
        if api in GENERATED:
            text = texts()[FOLDER / f"{GENERATED[api]}.py"]
            for version in generated_versions(api, request):
                for name, cls in (("encode", request), ("decode", request.RESPONSE)):
                    assert f"def {name}_{cls.__name__}_v{version}(" in text


def test_the_versions_are_those_of_the_newest_brokers() -> None:
    newest = profile(RELEASES[-1]).ranges
    for api_key, (_, api) in APIS.items():
        if api in GENERATED:
            request = request_class(api_key)
            version = min(newest[api_key][1], request.VERSIONS[1], LAST_OF_CLIENTS.get(api, 99))
            assert generated_versions(api, request)[-1] == version, api


def test_only_the_newest_version_has_one() -> None:
    newest = MetadataRequest.VERSIONS[1]
    name = f"encode_MetadataRequest_v{newest}"
    assert (generated(name, MetadataRequest, newest) is not None) is FOLDER.exists()
    assert generated(name, MetadataRequest, newest - 1) is None


def test_programs_without_them_work() -> None:
    """As those that were frozen, with the modules that imports name."""
    program = (
        "import sys\n"
        "sys.modules['aiokafka.protocol._generated'] = None\n"
        "from aiokafka.protocol.compiler import codec\n"
        "from aiokafka.protocol.messages import MetadataRequest as Request\n"
        "newest = Request.VERSIONS[1]\n"
        "assert codec(Request, newest).encode_bytes(Request(topics=None))\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.skipif(not FOLDER.exists(), reason="a checkout that was not built")
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
