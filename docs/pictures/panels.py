"""Draw the panels of the dashboard, as a Prometheus server answers their queries.

``python docs/pictures/panels.py`` needs ``prometheus`` on the path. It runs a service on a fake
cluster for three minutes, has Prometheus scrape it each second, asks the queries of
``examples/monitoring/dashboard.json``, and writes ``dashboard.svg``. In that time the group falls
behind, a second member joins, and a broker is away. A query that fails or finds nothing ends it
with an error, as does an alert rule that Prometheus cannot evaluate.
"""

from __future__ import annotations

import asyncio
import json
import math
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client import REGISTRY, start_http_server

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.metrics.prometheus import KafkaCollector
from aiokafka.testing import FakeCluster

HERE = Path(__file__).parent
MONITORING = HERE.parent.parent / "examples" / "monitoring"
SECONDS = 180
VARIABLES = {"$__rate_interval": "10s", "$client": ".*", "$topic": ".*"}
"""What Grafana puts there, for a server that is asked each second."""

CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 5s}}
rule_files: [{rules}]
scrape_configs: [{{job_name: billing, static_configs: [{{targets: ["127.0.0.1:{port}"]}}]}}]
"""

Points = list[tuple[float, float]]


class Panel(NamedTuple):
    """A panel with the series that its queries have found."""

    title: str
    unit: str
    series: list[tuple[str, Points]]


# -- the service


class Service:
    """A shop that sends orders, and a group that bills them, with what happens to them."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._is_slow = False
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Run for `SECONDS`; each thing happens at its part of them."""
        await self._cluster.create_topic("orders", partitions=3)
        self._tasks = [asyncio.create_task(self._send()), asyncio.create_task(self._bill(1))]
        await asyncio.sleep(SECONDS * 0.2)
        self._is_slow = True
        await asyncio.sleep(SECONDS * 0.15)
        self._tasks.append(asyncio.create_task(self._bill(2)))
        self._is_slow = False
        await asyncio.sleep(SECONDS * 0.25)
        await self._cluster.stop_broker(1)
        await asyncio.sleep(SECONDS * 0.1)
        await self._cluster.start_broker(1)
        await asyncio.sleep(SECONDS * 0.3)

    async def close(self) -> None:
        """Stop the clients."""
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def _send(self) -> None:
        servers = self._cluster.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers, client_id="shop") as producer:
            while True:
                for _ in range(40 + int(20 * math.sin(time.monotonic() / 9))):
                    await producer.send("orders", b"x" * 200)
                await asyncio.sleep(0.1)

    async def _bill(self, number: int) -> None:
        consumer = AIOKafkaConsumer(
            "orders",
            bootstrap_servers=self._cluster.bootstrap_servers,
            client_id=f"billing-{number}",
            group_id="billing",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        async with consumer:
            while True:
                await consumer.getmany(timeout_ms=1000, max_records=20 if self._is_slow else 500)
                await consumer.commit()
                await asyncio.sleep(0.15)


# -- Prometheus


class Server:
    """A Prometheus server that scrapes this process."""

    def __init__(self, folder: Path, scraped: int) -> None:
        self._address = f"127.0.0.1:{free_port()}"
        config = folder / "prometheus.yml"
        config.write_text(CONFIG.format(rules=MONITORING / "alerts.yml", port=scraped))
        self.process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={self._address}",
                "--log.level=error",
            ]
        )

    def ask(self, path: str, **arguments: object) -> Any:
        """Return what the server answers; raises OSError if it refuses the question."""
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
        with urllib.request.urlopen(url) as response:
            return json.load(response)["data"]

    def check_rules(self) -> None:
        """Raise SystemExit if an alert rule cannot be evaluated."""
        for group in self.ask("rules")["groups"]:
            for rule in group["rules"]:
                if rule["health"] != "ok":
                    raise SystemExit(f"alert {rule['name']}: {rule.get('lastError')}")
                print(f"alert {rule['name']}: {rule['state']}")

    def read(self, panel: dict[str, Any], began_at: float) -> Panel:
        """Return the panel with what its queries find. Raises SystemExit if that is nothing."""
        found = []
        for target in panel["targets"]:
            query = target["expr"]
            for name, value in VARIABLES.items():
                query = query.replace(name, value)
            ends_at = time.time()
            answer = self.ask("query_range", query=query, start=began_at, end=ends_at, step=1)
            if not answer["result"]:
                raise SystemExit(f"{panel['title']}: nothing for {query}")
            for one in answer["result"]:
                label = target["legendFormat"]
                for name, value in one["metric"].items():
                    label = label.replace("{{" + name + "}}", value)
                points = [(at - began_at, float(value)) for at, value in one["values"]]
                found.append((label, [point for point in points if math.isfinite(point[1])]))
        unit = panel["fieldConfig"]["defaults"].get("unit", "short")
        return Panel(panel["title"], unit, sorted(found))


def free_port() -> int:
    """Return a port that nothing listens on at the moment."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


# -- the picture

WIDTH, HEIGHT, GAP, COLUMNS = 300, 190, 14, 3
LEFT, TOP, PLOT = 46, 30, 96
LEGEND_LINES = 3
COLORS = ("#3a7ebf", "#d9822b", "#4f9a4a", "#b3524f", "#8a63b0", "#7d7d7d")
STYLE = """
svg { --back: #ffffff; --text: #1c2733; --soft: #4a5a6a; --rim: #d5dce3 }
@media (prefers-color-scheme: dark) {
  svg { --back: #161b21; --text: #e3e9ef; --soft: #a5b3c0; --rim: #333d47 } }
text { font-family: Helvetica, Arial, sans-serif; font-size: 10px; fill: var(--soft) }
.title { font-weight: bold; font-size: 12px; fill: var(--text) }
.group { font-weight: bold; font-size: 14px; fill: var(--text) }
.back { fill: var(--back) }
.panel, .grid { fill: none; stroke: var(--rim) }
polyline { fill: none; stroke-width: 1.4 }
"""


def shown(value: float, unit: str) -> str:
    """Return a value with its unit, as short as it fits on an axis."""
    if unit == "percentunit":
        return f"{value:.0%}" if value >= 0.1 or not value else f"{value:.2%}"
    if unit == "s":
        return f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s"
    if unit == "bytes":
        power = 2 if value >= 1 << 20 else 1 if value >= 1 << 10 else 0
        return f"{value / 1024**power:.3g} {('B', 'KiB', 'MiB')[power]}"
    return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def draw_panel(panel: Panel, x: int, y: int) -> list[str]:
    """Return a panel with its axis, lines and legend."""
    plain = escape(panel.title)
    parts = [
        f'<rect class="panel" x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="4"/>',
        f'<text class="title" x="{x + 10}" y="{y + 18}">{plain}</text>',
    ]
    top = max((value for _, points in panel.series for _, value in points), default=0) * 1.1 or 1
    left, wide = x + LEFT, WIDTH - LEFT - 10
    for part in (0, 0.5, 1):
        at = y + TOP + PLOT * (1 - part)
        parts.append(f'<path class="grid" d="M{left} {at:g} h{wide}"/>')
        text = shown(top * part, panel.unit)
        parts.append(f'<text x="{left - 4}" y="{at + 3:g}" text-anchor="end">{text}</text>')
    for number, (label, points) in enumerate(panel.series):
        color = COLORS[number % len(COLORS)]
        line = " ".join(
            f"{left + wide * at / SECONDS:.0f},{y + TOP + PLOT * (1 - value / top):.1f}"
            for at, value in points[::2]
        )
        parts.append(f'<polyline stroke="{color}" points="{line}"/>')
        if number < LEGEND_LINES * 2:
            column, row = divmod(number, LEGEND_LINES)
            at_x, at_y = x + 12 + column * 145, y + TOP + PLOT + 18 + row * 14
            parts.append(f'<rect x="{at_x}" y="{at_y - 7}" width="8" height="8" fill="{color}"/>')
            parts.append(f'<text x="{at_x + 12}" y="{at_y}">{escape(label)}</text>')
    return parts


def draw(groups: list[tuple[str, list[Panel]]]) -> str:
    """Return the dashboard as SVG: its rows, and the panels of each."""
    parts, y = [], 0
    for title, panels in groups:
        parts.append(f'<text class="group" x="0" y="{y + 18}">{escape(title)}</text>')
        y += 28
        for number, panel in enumerate(panels):
            row, column = divmod(number, COLUMNS)
            parts += draw_panel(panel, column * (WIDTH + GAP), y + row * (HEIGHT + GAP))
        y += math.ceil(len(panels) / COLUMNS) * (HEIGHT + GAP)
    wide = COLUMNS * (WIDTH + GAP) - GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-8 0 {wide + 16} {y}" role="img">'
    back = f'<rect class="back" x="-8" width="{wide + 16}" height="{y}"/>'
    return "\n".join([head, f"<style>{STYLE}</style>", back, *parts, "</svg>\n"])


async def main() -> None:
    """Run the service and the server, and write the picture."""
    port = free_port()
    start_http_server(port, "127.0.0.1")
    REGISTRY.register(KafkaCollector())
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), port)
        try:
            async with FakeCluster(brokers=3) as cluster:
                service = Service(cluster)
                began_at = time.time()
                await service.run()
                await service.close()
            server.check_rules()
            groups: list[tuple[str, list[Panel]]] = []
            for panel in json.loads((MONITORING / "dashboard.json").read_text())["panels"]:
                if panel["type"] == "row":
                    groups.append((panel["title"], []))
                else:
                    groups[-1][1].append(server.read(panel, began_at))
        finally:
            server.process.terminate()
            server.process.wait()
    (HERE / "dashboard.svg").write_text(draw(groups))
    print(f"{sum(len(panels) for _, panels in groups)} panels", file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(main())
