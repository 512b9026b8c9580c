"""Wrong arguments are refused where they are given, with what is accepted: what a test gets wrong
would show far from there, as a closed connection or a program that waits."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka.errors import CommitFailedError, NotLeaderForPartitionError
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import (
    Cut,
    Delay,
    Edit,
    Fail,
    FakeCluster,
    FaultProxy,
    Hold,
    RawBytes,
    Security,
)

# For a type checker, all of these are wrong.
make: Any = FakeCluster
security: Any = Security
fail: Any = Fail
delay: Any = Delay
hold: Any = Hold
edit: Any = Edit
raw: Any = RawBytes
cluster: Any = FakeCluster(brokers=2)
proxy: Any = FaultProxy("127.0.0.1:9092")

WRONG: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: make(brokers="3"), TypeError, "brokers must be a whole number, not '3'"),
    (lambda: make(brokers=True), TypeError, "brokers must be a whole number, not True"),
    (lambda: make(security={"alice": "x"}), TypeError, "security must be a Security"),
    (lambda: make(ssl_context=True), TypeError, "ssl_context must be an ssl.SSLContext"),
    (
        lambda: make(ssl_context=ssl.create_default_context()),
        ValueError,
        r"ssl_context must be one for servers, as of ssl\.create_default_context",
    ),
    (lambda: security([("alice", "x")]), TypeError, "users must be a dict of passwords, not list"),
    (lambda: security({"alice": b"x"}), TypeError, "users: 'alice' must be a string, with a str"),
    (lambda: security(mechanisms="PLAIN"), TypeError, r"a list of names, such as \['PLAIN'\]"),
    (lambda: security(session_lifetime_ms="1"), TypeError, "session_lifetime_ms must be a whole"),
    (lambda: security(accept_token="x"), TypeError, "accept_token must be a function, not 'x'"),
    (lambda: fail("NOT_LEADER"), TypeError, "such as NotLeaderForPartitionError, not 'NOT_LEADER'"),
    (lambda: fail(CommitFailedError), TypeError, "error must be a number, or an error class"),
    (lambda: delay("1"), TypeError, "seconds must be a number, not '1'"),
    (lambda: delay(True), TypeError, "seconds must be a number, not True"),
    (lambda: delay(-1), ValueError, "seconds must be at least 0, not -1"),
    (lambda: delay(1, Cut), TypeError, r"then: give Cut\(...\), not the class"),
    (lambda: delay(1, NotLeaderForPartitionError), TypeError, r"then: give Fail\(NotLeader"),
    (lambda: hold(asyncio.Event().set), TypeError, "event must be an asyncio.Event"),
    (lambda: edit({}), TypeError, "change must be a function, not {}"),
    (lambda: raw("x"), TypeError, "data must be bytes, not str"),
    (lambda: cluster.intercept("produce", Cut()), TypeError, "api must be a class such as Produce"),
    (lambda: cluster.intercept(ProduceRequest, Cut(), times="1"), TypeError, "times must be a"),
    (lambda: cluster.requests("produce"), TypeError, "api must be .* not 'produce'"),
    (lambda: cluster.count("produce"), TypeError, "api must be .* not 'produce'"),
    (lambda: cluster.throttle(-1), ValueError, "milliseconds must be at least 0"),
    (lambda: cluster.partition(None), TypeError, "topic: must be a str, not NoneType"),
    (lambda: cluster.log("t", "0"), TypeError, "partition must be a whole number, not '0'"),
    (lambda: cluster.add_partitions("t", 3), KeyError, "topic: no topic 't'"),
    (lambda: cluster.add_partitions([], 3), TypeError, "topic: must be a str, not list"),
    (lambda: cluster.advertise(0, None, 1), TypeError, "host: must be a str, not NoneType"),
    (lambda: cluster.advertise(0, "h", "1"), TypeError, "port must be a whole number, not '1'"),
    (lambda: cluster.move_leader("t", 0), TypeError, "tp: must be TopicPartition instances"),
    (lambda: cluster.move_coordinator("group", b"g", 0), TypeError, "key: must be a str"),
    (lambda: make(racks=3), TypeError, "racks: must be several racks, not int"),
    (lambda: make(config=3), TypeError, "config: must be a dict, not int"),
    (lambda: cluster.broker(2), KeyError, "no broker 2: there are 0, 1"),
    (lambda: cluster.address("0"), KeyError, "no broker '0': there are 0, 1"),
    (lambda: cluster.drop_connections(2), KeyError, "no broker 2: there are 0, 1"),
    (lambda: cluster.move_coordinator("group", "g", 2), KeyError, "no broker 2: there are 0, 1"),
    (lambda: cluster.move_coordinator("groups", "g", 1), KeyError, "one of group, transaction"),
    (lambda: cluster.faults.hang(2), KeyError, "no broker 2: there are 0, 1"),
    (lambda: cluster.faults.hang(0, ProduceRequest), TypeError, "apis must be a list of classes"),
    (lambda: cluster.faults.hang(0, "produce"), TypeError, "apis must be a list of classes"),
    (lambda: cluster.faults.slow(0, "1"), TypeError, "seconds must be a number, not '1'"),
    (lambda: cluster.faults.slow(0, (1, -1)), ValueError, "seconds must be at least 0"),
    (lambda: cluster.replication.lag("1"), TypeError, "seconds must be a number, not '1'"),
    (lambda: FaultProxy("localhost"), ValueError, 'target must be "host:port" of one server'),
    (lambda: setattr(proxy, "target", "a:1,b"), ValueError, "of one server, not 'a:1,b'"),
    (lambda: proxy.stall("request"), ValueError, 'must be "requests" or "responses", not'),
    (lambda: proxy.cut_after(1, "both"), ValueError, 'must be "requests" or "responses", not'),
    (lambda: proxy.cut_after("1"), TypeError, "n_bytes must be a whole number"),
    (lambda: proxy.delay("1"), TypeError, "seconds must be a number"),
    (lambda: proxy.fragment(1.5), TypeError, "size must be a whole number, not 1.5"),
]


@pytest.mark.parametrize(
    ("call", "error", "said"), [pytest.param(*case, id=case[2][:40]) for case in WRONG]
)
def test_it_is_refused_at_once(
    call: Callable[[], object], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        call()


AWAITED: list[tuple[Callable[[], Any], str]] = [
    (lambda: cluster.create_topic(3), "name: must be a str, not int"),
    (lambda: cluster.create_topic("t", "3"), "partitions must be a whole number, not '3'"),
    (lambda: cluster.create_topic("t", 1, None), "replication_factor must be a whole number"),
    (lambda: cluster.create_topic("t", config=["x"]), "config: must be a dict, not list"),
    (lambda: cluster.create_topic("t", assignment=[[0]]), "assignment: must be a dict, not list"),
    (lambda: cluster.create_topic("t", assignment={0: 0}), "assignment: 0: must be several broker"),
    (lambda: cluster.delete_topic(None), "name: must be a str, not NoneType"),
    (lambda: cluster.wait_for(True), "condition=True: must be a function"),
    (lambda: cluster.wait_for(lambda: True, "1"), "timeout_s must be a number, not '1'"),
]


@pytest.mark.parametrize(
    ("call", "said"), [pytest.param(*case, id=case[1][:40]) for case in AWAITED]
)
async def test_it_is_refused_by_calls_that_wait(call: Callable[[], Any], said: str) -> None:
    async with cluster:
        with pytest.raises(TypeError, match=said):
            await call()
