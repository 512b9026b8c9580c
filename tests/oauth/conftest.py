"""An identity provider for each test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.oauth.identity_provider import IdentityProvider


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[IdentityProvider]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with IdentityProvider() as found:
        yield found
