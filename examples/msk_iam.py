"""Log in to Amazon MSK with IAM.

Credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or from wherever botocore finds
them if that is installed. With --dry-run nothing is sent: it prints the user to log in as.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import sys
from urllib.parse import parse_qs, urlsplit

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.helpers import create_ssl_context
from aiokafka.oauth import MskIamTokenProvider


async def send(bootstrap: str, topic: str, tokens: MskIamTokenProvider) -> None:
    async with AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        security_protocol="SASL_SSL",
        ssl_context=create_ssl_context(),
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=tokens,
    ) as producer:
        metadata = await producer.send_and_wait(topic, b"Hello")
        print(f"sent to partition {metadata.partition}")


async def show(tokens: MskIamTokenProvider) -> None:
    token = await tokens.token()
    url = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    fields = parse_qs(url.query)
    print(f"{fields['Action'][0]} at {url.netloc}")
    print(f"as {fields['X-Amz-Credential'][0].split('/')[0]}, for {fields['X-Amz-Expires'][0]} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9098", help="host:port of a broker")
    parser.add_argument("--topic", default="my-topic")
    parser.add_argument("--region", help="by default AWS_REGION")
    parser.add_argument("--dry-run", action="store_true")
    given = parser.parse_args()
    tokens = MskIamTokenProvider(given.region)
    try:
        asyncio.run(show(tokens) if given.dry_run else send(given.bootstrap, given.topic, tokens))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
