"""The names of Java's metrics in docs/metric_names.csv are those that its client has."""

from __future__ import annotations

import re
from zipfile import ZipFile

from tests.kafka.jars import fetch_clients_jar
from tests.support.metric_names import metric_rows

CLASSES = re.compile(r"org/apache/kafka/(clients|common/(network|utils|metrics))/.*\.class")
NAME = re.compile(rb"-?[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
ENDINGS = ("-rate", "-total", "-avg", "-max", "-time-ns-total")


def test_javas_client_has_these_names() -> None:
    """Its classes have them as they are, or what they begin with and one of the endings."""
    with ZipFile(fetch_clients_jar("4.4.0")) as jar:
        classes = [jar.read(name) for name in jar.namelist() if CLASSES.fullmatch(name)]
    known = {found.decode() for data in classes for found in NAME.findall(data)}
    named = {name for java in metric_rows().values() for name in java}
    assert len(named) > 50
    for name in named:
        stems = [name.removesuffix(ending) for ending in ENDINGS if name.endswith(ending)]
        assert name in known or any(stem in known for stem in stems), name
