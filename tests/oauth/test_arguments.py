"""Arguments of token providers that cannot be: refused when the provider is made."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka.oauth import (
    ClientCredentialsTokenProvider,
    FileAssertion,
    FileTokenProvider,
    JwtBearerTokenProvider,
)

URL = "https://idp.example/token"

WRONG: list[tuple[str, dict[str, Any]]] = [
    ("assertion", {"assertion": "/run/assertion.jwt"}),
    ("assertion", {"assertion": FileAssertion}),
    ("scope", {"client_id": "a", "client_secret": "b", "scope": ["read", "write"]}),
    ("parameters", {"client_id": "a", "client_secret": "b", "parameters": ["audience"]}),
    ("client_id", {"client_id": 5, "client_secret": "b"}),
    ("extensions", {"client_id": "a", "client_secret": "b", "extensions": ["logicalCluster"]}),
    ("extensions", {"client_id": "a", "client_secret": "b", "extensions": {"cluster": 1}}),
]


@pytest.mark.parametrize(("argument", "options"), WRONG)
def test_the_error_names_the_argument(argument: str, options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=f"^{argument}: "):
        ClientCredentialsTokenProvider(URL, **options)


def test_an_exchange_needs_an_assertion() -> None:
    with pytest.raises(TypeError, match=r"^assertion: "):
        JwtBearerTokenProvider(URL, assertion=None)  # type: ignore[arg-type]


def test_extensions_of_a_file_are_texts() -> None:
    with pytest.raises(TypeError, match=r"^extensions: "):
        FileTokenProvider("/run/token", extensions={"cluster": 1})  # type: ignore[dict-item]
