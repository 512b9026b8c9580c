"""Identity providers that repeat what they were sent."""

from __future__ import annotations

import base64

import pytest

from aiokafka.errors import AuthenticationFailedError
from tests.oauth.identity_provider import CLIENT_ID, CLIENT_SECRET, IdentityProvider
from tests.oauth.support import client

ENCODED = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()


@pytest.mark.parametrize("secret", [CLIENT_SECRET, ENCODED])
@pytest.mark.parametrize("field", ["error", "error_description"])
async def test_no_form_of_the_secret_is_shown(
    provider: IdentityProvider, secret: str, field: str
) -> None:
    provider.script.append((401, {"error": "x", field: f"Authorization: Basic {secret} is wrong"}))
    with pytest.raises(AuthenticationFailedError) as caught:
        await client(provider).token()
    shown = str(caught.value)
    assert "is wrong" in shown
    assert secret not in shown


async def test_a_redirection_with_the_secret_is_not_shown(provider: IdentityProvider) -> None:
    provider.script.append((302, b""))
    provider.echo_headers = {"Location": f"https://other.example/?auth={ENCODED}"}
    with pytest.raises(AuthenticationFailedError, match="redirects") as caught:
        await client(provider).token()
    assert ENCODED not in str(caught.value)
