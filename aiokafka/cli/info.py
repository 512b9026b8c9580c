"""`aiokafka info`: what is installed here, and what runs there."""

from __future__ import annotations

import platform
from typing import Any

from aiokafka import __version__
from aiokafka.cli.failures import code_of
from aiokafka.cli.session import Session, command
from aiokafka.errors import KafkaError

__all__ = ["commands", "installed"]

# By exit code: what came of the attempt to connect.
_TOLD = {3: "no response: ", 4: "refused: "}


def installed() -> dict[str, str]:
    """Return facts about this installation by name."""
    from aiokafka.record import batch
    from aiokafka.record.compression import CODECS, has_codec

    return {
        "aiokafka": __version__,
        "form": "pure Python" if str(batch.__file__).endswith(".py") else "compiled",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": platform.platform(terse=True),
        "codecs": ",".join(name for name in sorted(CODECS) if has_codec(name)),
        "missing codecs": ",".join(name for name in sorted(CODECS) if not has_codec(name))
        or "none",
    }


@command(None, "info")
async def commands(session: Session) -> int:
    """Show versions and codecs, and the brokers if they respond.

    Exits with 3 when no broker responds, with 4 when they refuse the credentials; what is installed
    is shown anyway.

    \b
    Example:
      aiokafka info -b localhost:9092
    """
    facts: dict[str, Any] = installed()
    for kind in ("servers", "controllers"):
        if f"bootstrap_{kind}" in session.client_options:
            facts[f"bootstrap {kind}"] = session.client_options[f"bootstrap_{kind}"]
    try:
        async with session.admin() as admin:
            cluster = await admin.describe_cluster()
    except KafkaError as error:
        code = code_of(error)
        facts["cluster"] = f"{_TOLD.get(code, '')}{error}"
        session.output.rows(_rows(facts), ("name", "value"))
        return code
    facts["cluster"] = cluster["cluster_id"]
    facts["controller"] = cluster["controller_id"]
    role = "controller" if "bootstrap controllers" in facts else "broker"
    for broker in sorted(cluster["brokers"], key=lambda each: int(each["node_id"])):
        rack = f" (rack {broker['rack']})" if broker["rack"] else ""
        facts[f"{role} {broker['node_id']}"] = f"{broker['host']}:{broker['port']}{rack}"
    session.output.rows(_rows(facts), ("name", "value"))
    return 0


def _rows(facts: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in facts.items()]
