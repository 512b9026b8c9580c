"""Transactions, tokens, single brokers and raw requests on the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka.cli.brokers import listener_of
from aiokafka.cli.settings import client_options, find_settings
from aiokafka.errors import KafkaConfigurationError
from aiokafka.oauth import ClientCredentialsTokenProvider, FileTokenProvider
from aiokafka.testing import FakeCluster, Security
from tests.cli.support import Cli, Served


async def leave_open(cluster: FakeCluster, name: str, *, forget: bool) -> int:
    """Leave a transaction open in orders-0, which its coordinator may lose; return its producer."""
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=name)
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait("orders", b"value", partition=0)
    known = cluster.transactions.by_id[name]
    if forget:
        del cluster.transactions.by_id[name]
        assert known.expiry is not None
        known.expiry.cancel()
    await producer.stop()
    return int(known.producer_id)


def test_transactions(cli: Cli) -> None:
    cli.served.topic("orders", 2)
    cluster = cli.served.cluster
    lost = cli.served.run(leave_open(cluster, "lost", forget=True))
    known = cli.served.run(leave_open(cluster, "known", forget=False))
    (row,) = cli.rows("transactions", "list")
    assert (row["transactional_id"], row["producer_id"]) == ("known", known)
    assert cli.rows("transactions", "list", "--state", "ongoing", "--open-for", "999999") == []
    (row,) = cli.rows("transactions", "describe", "known")
    assert row["producer_epoch"] >= 0
    assert cli.run("transactions", "describe", "nothing").code == 5
    assert cli.run("transactions", "list", "--state", "nothing").code == 2
    rows = cli.rows("transactions", "producers", "orders-0")
    assert {row["producer_id"] for row in rows} == {lost, known}
    (row,) = cli.rows("transactions", "find-hanging", "--minutes", "0")
    assert (row["partition"], row["producer_id"]) == ("orders-0", lost)
    cli("transactions", "abort", "orders-0", str(lost), str(row["producer_epoch"]), "--yes")
    assert cli.rows("transactions", "find-hanging", "--minutes", "0") == []
    cli("transactions", "terminate", "known", "--yes")
    assert cli.run("transactions", "terminate", "nothing", "--yes").code == 5
    cli("transactions", "fence", "known", "--yes")
    assert cli.rows("transactions", "list", "--state", "ongoing") == []


def test_what_cannot_be_looked_into_is_named_beside_what_hangs(cli: Cli) -> None:
    cli.served.topic("orders", 2)
    cluster = cli.served.cluster
    cli.served.run(leave_open(cluster, "lost", forget=True))

    async def lose() -> None:
        cluster.state.node_down(cluster.state.topics["orders"].partitions[1].leader)

    cli.served.run(lose())
    done = cli.run("transactions", "find-hanging", "--minutes", "0", "-o", "json")
    assert done.code == 1
    assert [row["partition"] for row in done.rows] == ["orders-0"]
    assert "orders-1" in done.err


def test_brokers_and_members(cli: Cli) -> None:
    assert cli.run("brokers", "unregister", "9", "--yes").code == 5
    assert cli.run("brokers", "unregister-controller", "9", "--yes").code == 5
    assert cli("brokers", "unregister-controller", "1", "--yes")
    assert cli.run("brokers", "set-features", "none.of.these=1", "--dry-run").code == 1
    assert cli.run("brokers", "set-features", "metadata.version").code == 2
    assert cli.run("groups", "remove-members", "billing", "--yes").code == 2
    assert cli.run("groups", "remove-members", "billing", "m", "--yes").code in (1, 5)


def test_voters(cli: Cli) -> None:
    directory = cli.rows("brokers", "quorum")[1]["directory_id"]
    cli("brokers", "set-features", "kraft.version=1")
    cli("brokers", "remove-voter", "1", directory, "--yes")
    assert cli.run("brokers", "remove-voter", "1", directory, "--yes").code == 5
    assert [row["replica_id"] for row in cli.rows("brokers", "quorum")][:1] == [0]
    cli("brokers", "add-voter", "1", directory, "CONTROLLER://localhost:9093")
    assert "directory" in cli("brokers", "quorum").out.splitlines()[0].lower()
    assert listener_of("A://[::1]:1") == ("A", "::1", 1)
    for wrong in ("localhost:1", "A://b", "A://b:0", "A://b:99999", "://b:1", "A://:1"):
        done = cli.run("brokers", "add-voter", "1", directory, wrong)
        assert (done.code, done.err.count("\n")) == (2, 1), wrong
    assert cli.run("brokers", "add-voter", "1", "no-uuid", "A://b:1").code == 2


def test_replicas_move_between_directories(cli: Cli) -> None:
    cli.served.topic("orders")
    leader = cli.rows("topics", "describe", "orders")[0]["leader"]
    before, other = (row["path"] for row in cli.rows("brokers", "log-dirs", str(leader)))

    def path() -> str:
        (row,) = cli.rows("brokers", "log-dirs", str(leader), "--replicas")
        assert (row["topic"], row["partition"]) == ("orders", 0)
        return str(row["path"])

    assert path() == before
    cli("brokers", "move-replicas", str(leader), f"orders-0={other}")
    assert path() == other
    assert cli.run("brokers", "move-replicas", str(leader), "orders-0=/nowhere").code == 5
    for wrong in ("orders-0", "orders=/a", "orders-0="):
        assert cli.run("brokers", "move-replicas", str(leader), wrong).code == 2


def test_controllers_are_asked_instead_of_brokers(cli: Cli) -> None:
    servers = cli.served.cluster.bootstrap_servers
    flags = ("--bootstrap-controllers", servers)
    done = cli.run("brokers", "quorum", *flags, "-X", "request_timeout_ms=2000")
    assert done.code == 3 and "is a broker, not a controller" in done.err
    done = cli.run("brokers", "quorum", *flags, "-b", servers)
    assert done.code == 2 and "not both" in done.err
    done = cli.run("consume", "t", *flags)
    assert (done.code, done.err.count("\n")) == (2, 1) and "--bootstrap-servers" in done.err


def test_any_request(cli: Cli) -> None:
    cli.served.topic("orders")
    lines = cli("request", "ListGroups", "--to", "all").rows
    assert [line["broker"] for line in lines] == [0, 1]
    fields = '{"topics": [{"name": "orders"}], "allow_auto_topic_creation": false}'
    (found,) = cli("request", "Metadata", fields, "--to", "leader:orders-0").rows
    assert found["topics"][0]["name"] == "orders"
    assert len(found["topics"][0]["topic_id"]) == 36
    cases = (
        (
            "DescribeGroups",
            '{"groups": "g"}',
            "DescribeGroupsRequest.groups: must be a list, not 'g'",
        ),
        (
            "Metadata",
            '{"topics": [{"name": null, "topic_id": 5}]}',
            ".topic_id: must be a UUID, not 5",
        ),
        (
            "Metadata",
            '{"topics": [{"name": null, "topic_id": "x"}]}',
            ".topic_id: must be a UUID: ",
        ),
        ("RenewDelegationToken", '{"hmac": 1, "renew_period_ms": 1}', ".hmac: must be base64"),
        ("ListGroups", "[" * 100_000, "aiokafka: "),
    )
    for api, text, message in cases:
        done = cli.run("request", api, text)
        assert (done.code, done.err.count("\n")) == (2, 1), done.err
        assert message in done.err
    for arguments in (
        ("Nothing",),
        ("ListGroups", "[]"),
        ("ListGroups", "{"),
        ("ListGroups", '{"nothing": 1}'),
        ("DescribeGroups", '{"groups": 1}'),
        ("InitProducerId",),
        ("ListGroups", "--to", "leader"),
    ):
        done = cli.run("request", *arguments)
        assert (done.code, done.err.count("\n")) == (2, 1), done.err


@pytest.fixture
def secured(served: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """A cluster that issues tokens to alice."""
    config = {"delegation.token.secret.key": "of-the-brokers"}
    cluster = FakeCluster(security=Security({"alice": "secret"}), config=config)
    served.run(cluster.start())
    for name, value in {
        "BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
        "SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "SASL_MECHANISM": "SCRAM-SHA-256",
        "USERNAME": "alice",
        "PASSWORD": "secret",
    }.items():
        monkeypatch.setenv(f"AIOKAFKA_{name}", value)
    yield cluster
    served.run(cluster.stop())


def test_tokens(cli: Cli, secured: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOKAFKA_BOOTSTRAP_SERVERS", secured.bootstrap_servers)
    (made,) = cli.rows("tokens", "create", "--renewer", "User:bob", "--hours", "1")
    (listed,) = cli.rows("tokens", "list")
    assert listed["token_id"] == made["token_id"]
    assert made["password"] not in str(listed)
    assert "expires at" in cli("tokens", "renew", made["token_id"], "--hours", "1").err
    cli("tokens", "expire", made["token_id"], "--yes")
    assert cli.rows("tokens", "list", "--owner", "User:alice") == []
    assert cli.run("tokens", "renew", "nothing").code == 5


def test_info_tells_wrong_credentials_from_no_response(
    cli: Cli, secured: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOKAFKA_BOOTSTRAP_SERVERS", secured.bootstrap_servers)
    monkeypatch.setenv("AIOKAFKA_PASSWORD", "wrong")
    done = cli.run("info")
    assert done.code == 4
    assert "refused: " in done.out and "no response" not in done.out


def test_a_password_on_stdin_is_its_first_line_alone(
    cli: Cli, secured: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What follows the password is there to be sent."""
    monkeypatch.setenv("AIOKAFKA_BOOTSTRAP_SERVERS", secured.bootstrap_servers)
    monkeypatch.delenv("AIOKAFKA_PASSWORD")
    cli.served.run(secured.create_topic("t"))
    cli.pipe("printf 'secret\\r\\none\\ntwo\\n' | aiokafka produce t --password-stdin")

    async def values() -> list[bytes | None]:
        return [record.value for record in secured.log("t").records()]

    assert cli.served.run(values()) == [b"one", b"two"]


def test_what_follows_a_password_on_stdin_is_the_command_s(
    cli: Cli, secured: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOKAFKA_BOOTSTRAP_SERVERS", secured.bootstrap_servers)
    monkeypatch.delenv("AIOKAFKA_PASSWORD")
    topics = "topics: {t: {partitions: 2}}"
    cli.pipe(f"printf 'secret\\n{topics}' | aiokafka topics apply - --password-stdin --yes")
    assert len(secured.state.topics["t"].partitions) == 2
    cli.pipe("printf 'secret\\ny\\n' | aiokafka topics delete t --password-stdin")
    assert not secured.state.topics


def options(environment: dict[str, str]) -> dict[str, object]:
    return client_options(find_settings({"config": None}, environment))


def test_settings_of_oauthbearer(tmp_path: object) -> None:
    base = {"AIOKAFKA_SECURITY_PROTOCOL": "SASL_SSL", "XDG_CONFIG_HOME": str(tmp_path)}

    async def build() -> None:
        found = options({**base, "AIOKAFKA_TOKEN_FILE": "token"})
        assert isinstance(found["sasl_oauth_token_provider"], FileTokenProvider)
        assert found["sasl_mechanism"] == "OAUTHBEARER"
        url = {"AIOKAFKA_TOKEN_ENDPOINT_URL": "https://login.example.com/token"}
        login = {"AIOKAFKA_USERNAME": "client", "AIOKAFKA_PASSWORD": "secret"}
        found = options({**base, **url, **login, "AIOKAFKA_TOKEN_SCOPE": "kafka"})
        assert isinstance(found["sasl_oauth_token_provider"], ClientCredentialsTokenProvider)
        assert "sasl_plain_username" not in found
        with pytest.raises(KafkaConfigurationError, match="not both"):
            options({**base, **url, "AIOKAFKA_TOKEN_FILE": "token"})
        with pytest.raises(KafkaConfigurationError, match="SASL_SSL"):
            options({"XDG_CONFIG_HOME": str(tmp_path), "AIOKAFKA_TOKEN_FILE": "token"})

    asyncio.run(build())
