"""Make room for a tenant: its topics, groups and transactions by a prefix, and a limit."""

from __future__ import annotations

import argparse
import asyncio
import sys

from aiokafka.admin import (
    AclBinding,
    AclOperation,
    AIOKafkaAdminClient,
    PatternType,
    QuotaEntity,
    ResourcePattern,
    ResourceType,
)
from aiokafka.errors import KafkaError

MAY = {
    ResourceType.TOPIC: (AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE),
    ResourceType.GROUP: (AclOperation.READ,),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE,),
}


async def make_tenant(admin: AIOKafkaAdminClient, tenant: str) -> None:
    """Allow the user of that name everything below `tenant.`, and limit it. Repeat it freely."""
    await admin.acls.create(
        [
            AclBinding(
                ResourcePattern(kind, f"{tenant}.", PatternType.PREFIXED),
                f"User:{tenant}",
                operation,
            )
            for kind, operations in MAY.items()
            for operation in operations
        ]
    )
    limits = {
        "producer_byte_rate": 1_000_000.0,  # bytes a second, for each broker
        "consumer_byte_rate": 2_000_000.0,
        "request_percentage": 25.0,
        "controller_mutation_rate": 5.0,  # partitions created or deleted a second
    }
    await admin.quotas.alter(QuotaEntity(user=tenant), limits)


async def run(bootstrap: str, tenants: list[str]) -> None:
    async with AIOKafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        for tenant in tenants:
            await make_tenant(admin, tenant)
        for binding in await admin.acls.describe():
            where, what = binding.pattern, binding.operation.name
            print(f"{binding.principal}: {what} {where.resource_type.name} {where.name}")
        for entity, limits in (await admin.quotas.describe()).items():
            print(f"{entity}: {limits['producer_byte_rate']:.0f} bytes a second")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("tenants", nargs="*", default=["blue", "green"])
    given = parser.parse_args()
    try:
        asyncio.run(run(given.bootstrap, given.tenants))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
