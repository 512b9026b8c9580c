"""Log in with tokens of a provider of your own."""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import sys
import time
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError
from aiokafka.helpers import create_ssl_context


class UnsecuredTokens(AbstractTokenProvider):
    """Makes tokens without a signature, which only brokers take that are set up for tests.

    A real one asks an identity provider.
    """

    def __init__(self, user: str, lifetime: float = 300) -> None:
        super().__init__()
        self._user = user
        self._lifetime = lifetime
        self._token = ""
        self._renew_at = 0.0

    async def token(self) -> str:
        # Called by each new connection, and by each open one before its session ends, that is when
        # the token expires. So keep a token while it is fresh, and never give a stale one.
        if time.monotonic() >= self._renew_at:
            self._token = await self._ask()
            self._renew_at = time.monotonic() + self._lifetime / 2
        return self._token

    async def _ask(self) -> str:
        now = time.time()
        claims = {"sub": self._user, "iat": now, "exp": now + self._lifetime}
        return f"{encode({'alg': 'none'})}.{encode(claims)}."


def encode(part: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


async def run(given: argparse.Namespace) -> None:
    options: dict[str, Any] = {
        "bootstrap_servers": given.bootstrap,
        "security_protocol": "SASL_PLAINTEXT" if given.cafile is None else "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": UnsecuredTokens(given.user),
    }
    if given.cafile is not None:
        options["ssl_context"] = create_ssl_context(cafile=given.cafile)
    async with AIOKafkaProducer(**options) as producer:
        sent = await producer.send_and_wait(given.topic, b"by " + given.user.encode())
        print(f"sent: partition {sent.partition}, offset {sent.offset}")
    async with AIOKafkaConsumer(**options) as consumer:
        consumer.assign([sent.topic_partition])
        consumer.seek(sent.topic_partition, sent.offset)
        record = await consumer.getone()
        print(f"read: {record.value!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9094", help="host:port of the listener")
    parser.add_argument("--topic", default="my-topic")
    parser.add_argument("--user", default="alice")
    parser.add_argument("--cafile", help="who signed the brokers' certificates (PEM): use TLS")
    try:
        asyncio.run(run(parser.parse_args()))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
