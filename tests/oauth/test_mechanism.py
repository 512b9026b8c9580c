"""What the mechanisms make of tokens: OAUTHBEARER of a provider's, SCRAM of delegation tokens."""

from __future__ import annotations

import pytest

from aiokafka._config import SecurityConfig
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import AuthenticationFailedError
from aiokafka.net.sasl import create_mechanism


class Tokens(AbstractTokenProvider):
    def __init__(self, **extensions: str) -> None:
        super().__init__()
        self.heard: list[str] = []
        self._extensions = extensions

    async def token(self) -> str:
        return "one.two.three"

    def extensions(self) -> dict[str, str]:
        return self._extensions

    def refused(self, token: str) -> None:
        self.heard.append(token)


class Bare:
    """Has what a provider needs, and does not derive from the base class."""

    async def token(self) -> str:
        return "one.two.three"

    def extensions(self) -> None:
        return None


def bearer(tokens: object) -> SecurityConfig:
    return SecurityConfig.from_options(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=tokens,
    )


async def test_token_and_extensions_are_sent() -> None:
    mechanism = create_mechanism(bearer(Tokens(logicalCluster="lkc-1", traceId="a b")), "host")
    await mechanism.prepare()
    assert mechanism.start() == (
        b"n,,\x01auth=Bearer one.two.three\x01logicalCluster=lkc-1\x01traceId=a b\x01\x01"
    )
    assert mechanism.step(b"") is None


@pytest.mark.parametrize("provider", [Tokens(), Bare()])
async def test_a_refusal_is_acknowledged_and_told_to_the_provider(provider: object) -> None:
    mechanism = create_mechanism(bearer(provider), "host")
    await mechanism.prepare()
    mechanism.start()
    assert mechanism.step(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(AuthenticationFailedError, match="invalid_token"):
        mechanism.step(b"")
    if isinstance(provider, Tokens):
        assert provider.heard == ["one.two.three"]


class Broken(Tokens):
    def refused(self, token: str) -> None:
        raise RuntimeError("a bug of the application")


async def test_a_provider_that_fails_to_hear_of_a_refusal_does_not_hide_it() -> None:
    mechanism = create_mechanism(bearer(Broken()), "host")
    await mechanism.prepare()
    mechanism.start()
    assert mechanism.step(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(AuthenticationFailedError, match="invalid_token"):
        mechanism.step(b"")


def scram(**options: object) -> SecurityConfig:
    return SecurityConfig.from_options(
        security_protocol="SASL_PLAINTEXT",
        sasl_plain_username="id",
        sasl_plain_password="aG1hYw==",
        **options,
    )


@pytest.mark.parametrize("is_token", [True, False])
async def test_scram_says_that_it_is_a_token(is_token: bool) -> None:
    options = scram(sasl_mechanism="SCRAM-SHA-256", sasl_scram_tokenauth=is_token)
    mechanism = create_mechanism(options, "host")
    await mechanism.prepare()
    assert mechanism.start().endswith(b",tokenauth=true") == is_token


def test_tokens_do_not_log_in_by_plain() -> None:
    with pytest.raises(ValueError, match="SCRAM-SHA-256"):
        scram(sasl_mechanism="PLAIN", sasl_scram_tokenauth=True)
