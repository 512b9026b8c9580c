"""Make a user, let it read a topic for a while, and limit what it may send."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys

from aiokafka.admin import (
    AclBinding,
    AclFilter,
    AclOperation,
    AIOKafkaAdminClient,
    NewScramCredential,
    PatternType,
    QuotaEntity,
    ResourcePattern,
    ResourceType,
)
from aiokafka.errors import KafkaError


async def change_rights(admin: AIOKafkaAdminClient, user: str, topic: str) -> None:
    may_read = AclBinding(
        ResourcePattern(ResourceType.TOPIC, topic), f"User:{user}", AclOperation.READ
    )
    await admin.acls.create([may_read])

    # What applies to the topic: entries with its name, with "*", with a prefix of its name.
    for found in await admin.acls.describe(AclFilter(ResourceType.TOPIC, topic, PatternType.MATCH)):
        print(f"{found.principal} {found.permission.name} {found.operation.name}")

    deleted = await admin.acls.delete([AclFilter.of(may_read)])
    print(f"deleted {sum(map(len, deleted.values()))}")


async def make_user(admin: AIOKafkaAdminClient, user: str, password: str) -> None:
    await admin.users.upsert(NewScramCredential(user, password))
    for name, credentials in (await admin.users.describe([user])).items():
        print(f"{name}: {', '.join(each.mechanism.name for each in credentials)}")

    limits = {"producer_byte_rate": 1_000_000, "consumer_byte_rate": None}
    await admin.quotas.alter(QuotaEntity(user=user), limits)
    for entity, found in (await admin.quotas.describe()).items():
        print(f"{entity}: {found}")


async def run(bootstrap: str, user: str, topic: str) -> None:
    async with AIOKafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        await make_user(admin, user, secrets.token_urlsafe())
        await change_rights(admin, user, topic)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--user", default="alice")
    parser.add_argument("--topic", default="my-topic")
    given = parser.parse_args()
    try:
        asyncio.run(run(given.bootstrap, given.user, given.topic))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
