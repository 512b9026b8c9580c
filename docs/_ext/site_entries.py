"""What the site has beside its text: links to KIPs, names of samples, search entries, cards."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.directives.code import LiteralInclude
from sphinx.domains import ObjType
from sphinx.transforms import SphinxTransform

_KIP = re.compile(r"\bKIP-(\d+)\b")
_WIKI = "https://cwiki.apache.org/confluence/display/KAFKA/"
_TITLES = {
    "32": "Add timestamps to Kafka message",
    "42": "Add Producer and Consumer Interceptors",
    "48": "Delegation token support for Kafka",
    "82": "Add Record Headers",
    "98": "Exactly Once Delivery and Transactional Messaging",
    "320": "Allow fetchers to detect and handle log truncation",
    "345": "Introduce static membership protocol to reduce consumer rebalances",
    "368": "Allow SASL Connections to Periodically Re-Authenticate",
    "392": "Allow consumers to fetch from closest replica",
    "429": "Kafka Consumer Incremental Rebalance Protocol",
    "447": "Producer scalability for exactly once semantics",
    "480": "Sticky Partitioner",
    "482": "The Kafka Protocol should Support Optional Tagged Fields",
    "516": "Topic Identifiers",
    "679": "Producer will enable the strongest delivery guarantee by default",
    "714": "Client metrics and observability",
    "794": "Strictly Uniform Sticky Partitioner",
    "848": "The Next Generation of the Consumer Rebalance Protocol",
    "890": "Transactions Server-Side Defense",
    "932": "Queues for Kafka",
}


def kip_address(number: str) -> str:
    """Return the address of a KIP; for those without a known title, of the list of all."""
    title = _TITLES.get(number)
    if title is None:
        return f"{_WIKI}Kafka+Improvement+Proposals"
    return f"{_WIKI}KIP-{number}%3A+{title.replace(' ', '+')}"


class KipLinks(SphinxTransform):
    """Makes every KIP-n in the text a link."""

    default_priority = 700

    def apply(self, **kwargs: Any) -> None:
        """Replace the text nodes, but those of titles, links and code."""
        for text in list(self.document.findall(nodes.Text)):
            if _KIP.search(text) and not _is_code_or_link(text):
                _replace(text)


def _is_code_or_link(text: nodes.Text) -> bool:
    kinds = (
        nodes.title,
        nodes.reference,
        nodes.literal,
        nodes.literal_block,
        addnodes.pending_xref,
    )
    node = text.parent
    while node is not None:
        if isinstance(node, kinds):
            return True
        node = node.parent
    return False


def _replace(text: nodes.Text) -> None:
    made: list[nodes.Node] = []
    end = 0
    for found in _KIP.finditer(text):
        made.append(nodes.Text(text[end : found.start()]))
        made.append(nodes.reference("", found[0], refuri=kip_address(found[1])))
        end = found.end()
    made.append(nodes.Text(text[end:]))
    text.parent.replace(text, made)


class Sample(LiteralInclude):
    """A ``literalinclude`` with the path of its file as caption."""

    def run(self) -> list[nodes.Node]:
        """Return the sample. A caption of the page's own is kept."""
        if "caption" not in self.options:
            self.options["caption"] = self.arguments[0].lstrip("./")
        return super().run()


def note_search_entry(env: Any, kind: str, name: str, anchor: str) -> None:
    """Make a name an entry of the search: `kind` is "option" or "error"."""
    env.get_domain("std").note_object(f"kafka-{kind}", name, anchor)


def index_entry(text: str, anchor: str) -> addnodes.index:
    """Return an entry of the index, which the search shows first for exactly this text."""
    return addnodes.index(entries=[("single", text, anchor, "main", None)])


def add_cards(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Describe a page to what shows previews of links."""
    if doctree is None:
        return
    first = next(iter(doctree.findall(nodes.paragraph)), None)
    about = " ".join(first.astext().split())[:200] if first is not None else ""
    title = context.get("title") or app.config.project
    tags = {
        "og:type": "website",
        "og:site_name": app.config.html_title,
        "og:title": re.sub("<[^>]*>", "", title),
        "og:description": about,
    }
    context["metatags"] = context.get("metatags", "") + "".join(
        f'<meta property="{name}" content="{escape(text)}">\n' for name, text in tags.items()
    )


def setup(app: Sphinx) -> dict[str, Any]:
    domain = app.registry.domains["std"]
    for kind in ("option", "error"):
        # Sphinx shows the first argument in the list of results; 0 is the highest priority.
        domain.object_types[f"kafka-{kind}"] = ObjType(f"client {kind}", searchprio=0)
    app.add_transform(KipLinks)
    app.add_directive("literalinclude", Sample, override=True)
    app.connect("html-page-context", add_cards)
    return {"parallel_read_safe": True}
