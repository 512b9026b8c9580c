"""Let a worker log in for an hour without the password: a delegation token.

Who knows the password (KAFKA_PASSWORD in the environment) makes a token, the worker logs in with
it, and in the end it is taken back.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError


async def work(connection: dict[str, Any], topic: str, token_id: str, password: str) -> None:
    async with AIOKafkaProducer(
        sasl_plain_username=token_id,
        sasl_plain_password=password,
        sasl_scram_tokenauth=True,
        **connection,
    ) as producer:
        metadata = await producer.send_and_wait(topic, b"Hello")
        print(f"the worker sent to partition {metadata.partition}")


async def wait_until_known(admin: AIOKafkaAdminClient, token_id: str) -> None:
    """Brokers learn of a token a moment after it was made."""
    while True:
        known = await admin.describe_delegation_tokens()
        if token_id in {token.token_id for token in known}:
            return
        await asyncio.sleep(0.1)


async def run(bootstrap: str, topic: str, user: str) -> None:
    connection = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
    }
    async with AIOKafkaAdminClient(
        sasl_plain_username=user, sasl_plain_password=os.environ["KAFKA_PASSWORD"], **connection
    ) as admin:
        token = await admin.create_delegation_token(max_lifetime_ms=3_600_000)
        print(f"a token of {token.owner}")
        await wait_until_known(admin, token.token_id)
        await work(connection, topic, token.token_id, token.password)
        await admin.expire_delegation_token(token.hmac)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--topic", default="my-topic")
    parser.add_argument("--user", required=True)
    given = parser.parse_args()
    try:
        asyncio.run(run(given.bootstrap, given.topic, given.user))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
