"""The examples that read, process and write in transactions, on the fake cluster."""

from __future__ import annotations

import pytest

from aiokafka.errors import IllegalGenerationError
from aiokafka.protocol.messages.transactions import TxnOffsetCommitRequest
from aiokafka.testing import Fail, FakeCluster
from tests.examples.scripts import run_script
from tests.support.transactions import committed_values

# By name: what is written for a record, the group, what is printed, how many commits fail.
EXAMPLES = {
    "transactional_session.py": (
        b'{"tick": 2, "tock": 1}',
        "word-counters",
        "5 records\n",
        0,  # the session would log it
    ),
    "transactional_transform.py": (
        b"TICK TICK TOCK",
        "shouters",
        "again: [Error 22] IllegalGenerationError: source-0 of group 'shouters'. "
        f"{IllegalGenerationError.description}\ndone\n",
        1,
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
async def test_each_record_once(name: str) -> None:
    result, group, printed, failures = EXAMPLES[name]
    async with FakeCluster() as cluster:
        await cluster.create_topic("source")
        await cluster.create_topic("target")
        cluster.log("source").extend([(b"k", b"tick tick tock", ())] * 5)
        arguments = ["--bootstrap", cluster.bootstrap_servers, "--count", "5"]
        arguments += ["--source", "source", "--target", "target"]
        refusal = Fail(IllegalGenerationError)
        if failures:
            cluster.intercept(TxnOffsetCommitRequest, refusal, times=failures)
        assert await run_script(name, *arguments) == printed
        assert committed_values(cluster, "target") == [result] * 5
        assert cluster.groups.committed(group, "source") == 5
