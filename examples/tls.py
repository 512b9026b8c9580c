"""Send and read a record over TLS; with --certfile the client shows a certificate of its own."""

from __future__ import annotations

import argparse
import asyncio
import ssl
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.helpers import create_ssl_context


async def run(given: argparse.Namespace) -> None:
    def make_context() -> ssl.SSLContext:
        # Called for each new connection: files that were replaced meanwhile are read again.
        return create_ssl_context(
            cafile=given.cafile, certfile=given.certfile, keyfile=given.keyfile
        )

    secured = {
        "bootstrap_servers": given.bootstrap,
        "security_protocol": "SSL",
        "ssl_context": make_context,
    }
    async with AIOKafkaProducer(**secured) as producer:
        sent = await producer.send_and_wait(given.topic, b"for your eyes only")
        print(f"sent: partition {sent.partition}, offset {sent.offset}")
    async with AIOKafkaConsumer(**secured) as consumer:
        consumer.assign([sent.topic_partition])
        consumer.seek(sent.topic_partition, sent.offset)
        record = await consumer.getone()
        print(f"read: {record.value!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9093", help="host:port of a TLS listener")
    parser.add_argument("--topic", default="my-topic")
    parser.add_argument("--cafile", help="who signed the brokers' certificates (PEM)")
    parser.add_argument("--certfile", help="certificate of the client, if brokers want one (PEM)")
    parser.add_argument("--keyfile", help="its key, if not in the same file")
    try:
        asyncio.run(run(parser.parse_args()))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
