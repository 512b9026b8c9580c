"""The FastStream application, unchanged, with defaults of the process: metrics, and by the file.

Arguments: those of `faststream_app.py`.
"""

import atexit
import json
import runpy
from collections import Counter
from pathlib import Path

import aiokafka
from aiokafka.metrics import ConsumerMetricsCollector, ProducerMetricsCollector

counts: Counter[str] = Counter()


class Delivered(ProducerMetricsCollector):
    def on_batch_completed(self, *, topic: str, record_count: int, **details: object) -> None:
        counts["delivered"] += record_count


class Consumed(ConsumerMetricsCollector):
    def on_records_consumed(self, *, topic: str, partition: int, record_count: int) -> None:
        counts["consumed"] += record_count


aiokafka.defaults(
    producer={"metrics_collector": Delivered()}, consumer={"metrics_collector": Consumed()}
)
atexit.register(lambda: print(json.dumps({"event": "counts", **counts}), flush=True))
runpy.run_path(str(Path(__file__).with_name("faststream_app.py")), run_name="__main__")
