"""``.. options:: ProducerConfig`` prints the options of a configuration class."""

from __future__ import annotations

import functools
from typing import Any

from docutils import nodes
from site_entries import index_entry, note_search_entry
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

from aiokafka import _config
from aiokafka._config import consumer, producer
from aiokafka._config.options import MISSING, Option
from aiokafka.oauth import _tokens as oauth_config

CONFIGS = ("ClientConfig", "SecurityConfig", "OAuthConfig", "ProducerConfig", "ConsumerConfig")
_SIZES = ("bytes", "memory", "size")
_PLAIN = ("True or False", "one of ", "a string, or None", "a function", "an instance of ")


def options_of(config: str) -> list[Option]:
    """Return the options of a configuration class, by its name."""
    modules = (_config, producer, consumer, oauth_config)
    module = next(module for module in modules if hasattr(module, config))
    found: list[Option] = getattr(module, config).describe()
    return found


def anchor(config: str, keyword: str) -> str:
    """Return the part of the address of the page that leads to an option."""
    return f"{config.removesuffix('Config').lower()}-{keyword}".replace("_", "-")


@functools.cache
def anchors() -> dict[str, list[str]]:
    """Return for each keyword where it is explained: at one place, but for a few."""
    found: dict[str, list[str]] = {}
    for config in CONFIGS:
        for option in options_of(config):
            found.setdefault(option.keyword, []).append(anchor(config, option.keyword))
    return found


class OptionList(SphinxDirective):
    """Print one entry an option: its type, default, meaning, Java's name, when to change it."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        config = self.arguments[0]
        found = options_of(config)
        names = nodes.paragraph(classes=["option-names"])
        for option in found:
            where = f"#{anchor(config, option.keyword)}"
            link = nodes.reference("", "", internal=True, refuri=where)
            link += nodes.literal(text=option.keyword)
            names += [link, nodes.Text(" ")]
        if self.env.docname == "configuration":
            for option in found:
                where = anchor(config, option.keyword)
                if anchors()[option.keyword][0] == where:
                    note_search_entry(self.env, "option", option.keyword, where)
        return [names, *(entry(config, option) for option in found)]


def entry(config: str, option: Option) -> addnodes.desc:
    made = addnodes.desc(domain="py", objtype="attribute", noindex=True, classes=["option"])
    name = anchor(config, option.keyword)
    words = dict.fromkeys((option.keyword, option.keyword.replace("_", " ")))
    made += [index_entry(text, name) for text in words]
    head = addnodes.desc_signature("", "", ids=[name], classes=["option"])
    head += addnodes.desc_name("", option.keyword)
    head += addnodes.desc_annotation("", f": {shown_type(option)}")
    if option.default is not MISSING:
        head += addnodes.desc_annotation("", f" = {option.default!r}")
    head += nodes.reference("", "¶", internal=True, refuri=f"#{name}", classes=["headerlink"])
    content = addnodes.desc_content()
    content += nodes.paragraph(text=f"{option.help}{limits(option)}{larger_unit(option)}")
    content += labelled("Change it", option.when)
    content += labelled("In Java", option.java, nodes.literal if option.java else nodes.inline)
    made += [head, content]
    return made


def labelled(label: str, text: str, kind: Any = nodes.inline) -> nodes.paragraph:
    made = nodes.paragraph(classes=["option-note"])
    made += [nodes.strong(text=f"{label}:"), nodes.Text(" "), kind(text=text or "none")]
    return made


def shown_type(option: Option) -> str:
    return option.annotation.replace("AbstractSet", "Set")


def limits(option: Option) -> str:
    """Say what is accepted, unless the type says it."""
    if option.accepts.startswith(_PLAIN):
        return ""
    return f" Must be {option.accepts}."


def larger_unit(option: Option) -> str:
    """Say what a large number is in minutes, seconds or MiB."""
    value = option.default
    if not isinstance(value, int) or isinstance(value, bool):
        return ""
    if option.keyword.endswith("_ms") and value >= 10_000:
        seconds = value // 1000
        text = f"{seconds // 60} min" if seconds % 60 == 0 else f"{seconds} s"
    elif option.keyword.endswith(_SIZES) and value >= 1024:
        text = f"{value >> 20} MiB" if value >= 1 << 20 else f"{value >> 10} KiB"
    else:
        return ""
    return f" The default is {text}."
