"""Log in by Kerberos, with a keytab or with the ticket that `kinit` left.

Needs ``pip install ".[gssapi]"``, and /etc/krb5.conf (or KRB5_CONFIG) that knows the realm.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError


async def run(bootstrap: str, topic: str, keytab: str | None, principal: str | None) -> None:
    options = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
        "sasl_kerberos_keytab": keytab,
        "sasl_kerberos_principal": principal,
    }
    async with AIOKafkaProducer(**options) as producer:
        metadata = await producer.send_and_wait(topic, b"Hello")
        print(f"sent to partition {metadata.partition}")
    async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **options) as consumer:
        record = await consumer.getone()
        print(f"read {record.value!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--topic", default="my-topic")
    parser.add_argument("--keytab", help="instead of a ticket")
    parser.add_argument("--principal", help="alice@EXAMPLE.COM")
    given = parser.parse_args()
    try:
        asyncio.run(run(given.bootstrap, given.topic, given.keytab, given.principal))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
