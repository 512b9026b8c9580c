"""A Faust worker with a table: it tells when that is recovered, counts words, and tells each count.

Arguments come by the environment, for those on the command line are Faust's.
"""

import json
import os

import faust

SERVERS, PREFIX, HOME = (os.environ[f"WORKER_{name}"] for name in ("SERVERS", "PREFIX", "HOME"))

# Faust takes sys.stdout for its log.
story = os.fdopen(os.dup(1), "w", buffering=1)

app = faust.App(
    f"{PREFIX}-app",
    broker=f"kafka://{SERVERS}",
    store="memory://",
    datadir=HOME,
    topic_partitions=1,
    topic_replication_factor=1,
    web_enabled=False,
    broker_commit_interval=0.5,
    broker_session_timeout=6.0,
    broker_heartbeat_interval=1.0,
)
words = app.topic(f"{PREFIX}-words", key_type=bytes, value_type=bytes, value_serializer="raw")
counts = app.Table("counts", default=int)
totals = app.topic(f"{PREFIX}-totals", key_type=bytes, value_type=bytes, value_serializer="raw")


@app.agent(words)
async def count(stream: faust.Stream) -> None:
    async for word in stream:
        name = word.decode()
        counts[name] += 1
        story.write(json.dumps({"event": "count", "word": name, "count": counts[name]}) + "\n")
        await totals.send(key=word, value=str(counts[name]).encode())


@app.task
async def tell() -> None:
    # Tasks begin when the tables are recovered.
    story.write(json.dumps({"event": "ready"}) + "\n")


if __name__ == "__main__":
    app.main()
