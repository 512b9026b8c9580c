"""Log in with tokens of an identity provider: OAUTHBEARER with client credentials.

The secret is in the environment (CLIENT_SECRET), where no list of processes shows it. One provider
serves both clients, so they share a token; it is replaced before it expires.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.helpers import create_ssl_context
from aiokafka.oauth import ClientCredentialsTokenProvider


async def run(bootstrap: str, topic: str, url: str, client_id: str, cafile: str | None) -> None:
    tokens = ClientCredentialsTokenProvider(
        url,
        client_id=client_id,
        client_secret=os.environ["CLIENT_SECRET"],
        scope="kafka",
    )
    options = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_context": create_ssl_context(cafile=cafile),
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": tokens,
    }
    async with AIOKafkaProducer(**options) as producer:
        metadata = await producer.send_and_wait(topic, b"Hello")
        print(f"sent to partition {metadata.partition}")
    async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **options) as consumer:
        record = await consumer.getone()
        print(f"read {record.value!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9093", help="host:port of a broker")
    parser.add_argument("--topic", default="my-topic")
    parser.add_argument("--token-endpoint", required=True, help="https://...")
    parser.add_argument("--client-id", required=True)
    parser.add_argument("--cafile", help="who has signed the brokers' certificates")
    given = parser.parse_args()
    try:
        asyncio.run(
            run(given.bootstrap, given.topic, given.token_endpoint, given.client_id, given.cafile)
        )
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
