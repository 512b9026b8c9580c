"""The configuration page has everything to say of every option."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from aiokafka import _config
from aiokafka._config import consumer, producer
from aiokafka.oauth import _tokens as oauth_config

FOLDER = Path(__file__).parent.parent / "docs" / "_ext"


def advice() -> ModuleType:
    spec = importlib.util.spec_from_file_location("advice", FOLDER / "advice.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def keywords(config: str) -> set[str]:
    modules = (_config, producer, consumer, oauth_config)
    module = next(module for module in modules if hasattr(module, config))
    found: frozenset[str] = getattr(module, config).keywords()
    return set(found)


@pytest.mark.parametrize("config", advice().TABLES)
def test_every_option_says_when_to_change_it(config: str) -> None:
    table = advice().TABLES[config]
    assert table.keys() == keywords(config)
    for keyword in table:
        java, when = advice().advice(config, keyword)
        assert re.fullmatch(r"[A-Z].*\.", when), keyword
        assert not java or "_" not in java, keyword


def test_every_configuration_is_on_the_page() -> None:
    page = (FOLDER.parent / "configuration.rst").read_text()
    assert set(re.findall(r"\.\. options:: (\w+)", page)) == advice().TABLES.keys()
