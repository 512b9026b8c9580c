"""The examples of security on fake clusters that ask for what they bring."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aiokafka.testing import FakeCluster, Security
from tests.examples.scripts import run_script
from tests.net.support import Certificates

OUTPUT = r"sent: partition 0, offset \d+\nread: b'{}'\n"


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.mark.parametrize("wants_client", [False, True])
async def test_tls(certificates: Certificates, wants_client: bool) -> None:
    server = certificates.server_context("127.0.0.1", wants_client=wants_client)
    arguments = ["--cafile", certificates.cafile]
    if wants_client:
        arguments += ["--certfile", certificates.issue("client", "client.example")]
    async with FakeCluster(ssl_context=server) as cluster:
        await cluster.create_topic("my-topic")
        output = await run_script("tls.py", "--bootstrap", cluster.bootstrap_servers, *arguments)
    assert re.fullmatch(OUTPUT.format("for your eyes only"), output), output


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
async def test_passwords(certificates: Certificates, tmp_path: Path, mechanism: str) -> None:
    password = tmp_path / "password"
    password.write_text("alice-secret\n")
    arguments = ["--mechanism", mechanism, "--password-file", str(password)]
    server = certificates.server_context("127.0.0.1")
    security = Security({"alice": "alice-secret"}, mechanisms=[mechanism])
    async with FakeCluster(security=security, ssl_context=server) as cluster:
        await cluster.create_topic("my-topic")
        arguments += ["--bootstrap", cluster.bootstrap_servers, "--cafile", certificates.cafile]
        output = await run_script("sasl_scram.py", *arguments)
        assert re.fullmatch(OUTPUT.format("by alice"), output), output
        security.users["alice"] = "changed"
        output = await run_script("sasl_scram.py", *arguments)
        assert output.startswith("refused: AuthenticationFailedError"), output


async def test_tokens() -> None:
    security = Security(mechanisms=["OAUTHBEARER"])
    async with FakeCluster(security=security) as cluster:
        await cluster.create_topic("my-topic")
        output = await run_script("sasl_oauthbearer.py", "--bootstrap", cluster.bootstrap_servers)
    assert re.fullmatch(OUTPUT.format("by alice"), output), output


async def test_rights() -> None:
    config = {"authorizer.class.name": "an.Authorizer", "super.users": "User:ANONYMOUS"}
    async with FakeCluster(config=config) as cluster:
        output = await run_script("rights.py", "--bootstrap", cluster.bootstrap_servers)
    assert output.splitlines() == [
        "alice: SCRAM_SHA_256",
        "user=alice: {'producer_byte_rate': 1000000.0}",
        "User:alice ALLOW READ",
        "deleted 1",
    ]
