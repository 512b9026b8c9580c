"""Log in with a user name and a password that is read from a file at each login."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import AuthenticationFailedError, KafkaError
from aiokafka.helpers import create_ssl_context


def login(given: argparse.Namespace) -> dict[str, Any]:
    async def read_password() -> str:
        # Asked for by each new connection, and where the broker ends sessions
        # (connections.max.reauth.ms) before each end: a changed password needs no restart.
        text = await asyncio.to_thread(Path(given.password_file).read_text)
        return text.strip()

    options = {
        "bootstrap_servers": given.bootstrap,
        "sasl_mechanism": given.mechanism,
        "sasl_plain_username": given.user,
        "sasl_plain_password": read_password,
    }
    if given.cafile is None:
        # Passwords and records travel in the clear (SCRAM hides the password): for tests only.
        return {**options, "security_protocol": "SASL_PLAINTEXT"}
    context = create_ssl_context(cafile=given.cafile)
    return {**options, "security_protocol": "SASL_SSL", "ssl_context": context}


async def run(given: argparse.Namespace) -> None:
    options = login(given)
    try:
        async with AIOKafkaProducer(**options) as producer:
            sent = await producer.send_and_wait(given.topic, b"by " + given.user.encode())
            print(f"sent: partition {sent.partition}, offset {sent.offset}")
    except AuthenticationFailedError as error:
        print(f"refused: {error}")
        return
    async with AIOKafkaConsumer(**options) as consumer:
        consumer.assign([sent.topic_partition])
        consumer.seek(sent.topic_partition, sent.offset)
        record = await consumer.getone()
        print(f"read: {record.value!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9094", help="host:port of the listener")
    parser.add_argument("--topic", default="my-topic")
    parser.add_argument("--mechanism", default="SCRAM-SHA-512", help="or SCRAM-SHA-256, or PLAIN")
    parser.add_argument("--user", default="alice")
    parser.add_argument("--password-file", required=True, help="a file with the password")
    parser.add_argument("--cafile", help="who signed the brokers' certificates (PEM): use TLS")
    try:
        asyncio.run(run(parser.parse_args()))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
