"""Whose AWS credentials sign."""

from __future__ import annotations

import base64
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from aiokafka.oauth import MskIamTokenProvider

pytest.importorskip("botocore")


async def key_in_use(provider: MskIamTokenProvider) -> str:
    token = await provider.token()
    url = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    return parse_qs(urlsplit(url).query)["X-Amz-Credential"][0].partition("/")[0]


async def test_a_profile_that_is_named_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the environment has for other programs."""
    path = tmp_path / "credentials"
    path.write_text("[mine]\naws_access_key_id = of-profile\naws_secret_access_key = secret\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "other")
    assert await key_in_use(MskIamTokenProvider("eu-central-1", profile="mine")) == "of-profile"
    assert await key_in_use(MskIamTokenProvider("eu-central-1")) == "of-environment"
