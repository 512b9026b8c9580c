"""The dashboard and the alert rules ask for metrics that there are, in queries that are right."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from aiokafka.metrics.prometheus import KafkaCollector
from aiokafka.testing import FakeCluster
from tests.support.consumers import Start, fill
from tests.support.producers import TOPIC, new_producer

MONITORING = Path(__file__).parent.parent.parent / "examples" / "monitoring"
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text())
ALERTS = yaml.safe_load((MONITORING / "alerts.yml").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
# What Grafana puts there before Prometheus reads a query.
VARIABLES = {"$__rate_interval": "1m", "$client": ".*", "$topic": ".*"}
PARTS = ("expr", "args", "lhs", "rhs", "vector_selector")


def queries() -> Iterator[str]:
    """Yield all queries, as Prometheus gets them."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            query = target["expr"]
            for name, value in VARIABLES.items():
                query = query.replace(name, value)
            yield query
    for rule in RULES:
        yield rule["expr"]


def selectors(node: Any) -> Iterator[Any]:
    """Yield the series that a parsed query asks for."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    for part in PARTS:
        below = getattr(node, part, None)
        for each in below if isinstance(below, list) else [below]:
            if each is not None:
                yield from selectors(each)


async def series(cluster: FakeCluster, start: Start) -> dict[str, set[str]]:
    """Return the names that a scrape has, with their labels."""
    fill(cluster, 0, 5, topic=TOPIC)
    consumer = await start(cluster, TOPIC, group_id="group", client_id="reader")
    await consumer.getone()
    await consumer.commit()
    async with new_producer(cluster, client_id="writer") as producer:
        await producer.send_and_wait(TOPIC, b"value", partition=1)
        registry = CollectorRegistry()
        registry.register(KafkaCollector([consumer, producer]))
        text = generate_latest(registry).decode()
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_all_panels_are_in_the_picture() -> None:
    text = (MONITORING.parent.parent / "docs" / "pictures" / "dashboard.svg").read_text()
    titles = [panel["title"] for panel in DASHBOARD["panels"]]
    assert re.findall(r'class="(?:title|group)"[^>]*>([^<]*)<', text) == titles


async def test_all_queries_find_something(cluster: FakeCluster, start: Start) -> None:
    known = await series(cluster, start)
    asked = set()
    for query in queries():
        for selector in selectors(promql_parser.parse(query)):
            asked.add(selector.name)
            assert selector.name in known, query
            labels = {matcher.name for matcher in selector.matchers.matchers}
            assert labels <= known[selector.name], query
    assert len(asked) > 20
    named = set(re.findall(r"kafka_[a-z_]+", " ".join(queries())))
    assert named == asked  # the parser's tree has no part that is passed by


def test_the_dashboard_is_whole() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [tuple(panel["gridPos"].values()) for panel in panels]
    assert len(set(places)) == len(places)
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(panels))) - {"__rate_interval"}
    assert used == variables


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule(rule: dict[str, Any]) -> None:
    assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"\d+[smhd]", rule.get("for", "0s"))
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"].keys() == {"summary", "description"}
    used = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
    assert used <= {"client_id", "topic", "partition"}
