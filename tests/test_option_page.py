"""The configuration page has everything to say of every option."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aiokafka import _config
from aiokafka._config import consumer, producer
from aiokafka._config.options import Options
from aiokafka.oauth import _tokens as oauth_config

PAGE = Path(__file__).parent.parent / "docs" / "configuration.rst"
CONFIGS: dict[str, type[Options]] = {
    "ClientConfig": _config.ClientConfig,
    "SecurityConfig": _config.SecurityConfig,
    "OAuthConfig": oauth_config.OAuthConfig,
    "ProducerConfig": producer.ProducerConfig,
    "ConsumerConfig": consumer.ConsumerConfig,
}


@pytest.mark.parametrize("name", CONFIGS)
def test_every_option_says_when_to_change_it(name: str) -> None:
    for option in CONFIGS[name].describe():
        assert re.fullmatch(r"[A-Z].*\.", option.when), option.keyword
        assert "_" not in option.java, option.keyword


def test_every_configuration_is_on_the_page() -> None:
    assert set(re.findall(r"\.\. options:: (\w+)", PAGE.read_text())) == CONFIGS.keys()
