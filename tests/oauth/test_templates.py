"""What a template can add to an assertion, and what it cannot change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from aiokafka.oauth import SignedAssertion
from tests.oauth.identity_provider import decoded, private_pem


def made(folder: Path, template: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    """Header and claims of an assertion."""
    key, path = folder / "key.pem", folder / "template.json"
    key.write_bytes(private_pem(ec.generate_private_key(ec.SECP256R1())))
    path.write_text(json.dumps(template))
    text = SignedAssertion(key, algorithm="ES256", template_file=path, **options).create()
    return [decoded(segment) for segment in text.split(".")[:2]]


def test_a_template_adds(tmp_path: Path) -> None:
    header, claims = made(tmp_path, {"header": {"kid": "one"}, "payload": {"tenant": 7}})
    assert header == {"kid": "one", "alg": "ES256", "typ": "JWT"}
    assert claims["tenant"] == 7


def test_arguments_win(tmp_path: Path) -> None:
    """A header that names another algorithm than that of the signature is refused everywhere."""
    template = {
        "header": {"alg": "none", "typ": "other"},
        "payload": {"aud": "not this", "exp": 1, "nbf": 2, "iat": 3, "iss": "kept"},
    }
    header, claims = made(tmp_path, template, claim_aud="kafka")
    assert header == {"alg": "ES256", "typ": "JWT"}
    assert (claims["aud"], claims["iss"]) == ("kafka", "kept")
    assert min(claims["exp"], claims["nbf"], claims["iat"]) > 1_000_000
