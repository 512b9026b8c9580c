"""Make a topic, look at it, give it more partitions, delete it."""

from __future__ import annotations

import argparse
import asyncio
import sys

from aiokafka.admin import AIOKafkaAdminClient, ConfigResource, NewPartitions, NewTopic
from aiokafka.errors import KafkaError, for_code


async def run(bootstrap: str, topic: str) -> None:
    async with AIOKafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        cluster = await admin.describe_cluster()
        print(f"cluster {cluster['cluster_id']} has {len(cluster['brokers'])} broker(s)")

        wanted = NewTopic(topic, 2, 1, topic_configs={"retention.ms": "3600000"})
        result = await admin.create_topics([wanted])
        # Errors of single topics are in the result, not raised.
        for name, code, message in result.topic_errors:
            print(
                f"create {name}: {'done' if not code else for_code(code).__name__} {message or ''}"
            )

        await admin.create_partitions({topic: NewPartitions(3)})
        (described,) = await admin.describe_topics([topic])
        for partition in described["partitions"]:
            print(f"partition {partition['partition']}: leader {partition['leader']}")

        (answer,) = await admin.describe_configs([ConfigResource("topic", topic, ["retention.ms"])])
        for entry in answer.resources[0].config_entries:
            print(f"{entry.config_name} = {entry.config_value}")

        await admin.delete_topics([topic])
        print(f"delete {topic}: done")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--topic", default="my-new-topic")
    given = parser.parse_args()
    try:
        asyncio.run(run(given.bootstrap, given.topic))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
