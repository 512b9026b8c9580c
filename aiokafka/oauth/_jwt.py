"""JSON web tokens: when one expires, and how one is signed."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any

from aiokafka.errors import AuthenticationFailedError

__all__ = ["ALGORITHMS", "expiry_of", "sign"]

# The year 2286; anything later is not a time in seconds.
_LAST_SECOND = 10**10


def expiry_of(token: str) -> float | None:
    """Return the expiry time of a token in seconds since 1970, None if it does not state one.

    The signature is not checked: the issuer is trusted, and the broker checks it.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        claims = json.loads(base64.urlsafe_b64decode(padded))
    except (binascii.Error, ValueError, RecursionError):
        return None
    expiry = claims.get("exp") if isinstance(claims, dict) else None
    if isinstance(expiry, bool) or not isinstance(expiry, (int, float)):
        return None
    return float(expiry) if 0 < expiry < _LAST_SECOND else None


def sign(header: Mapping[str, Any], claims: Mapping[str, Any], key: Any) -> str:
    """Return a token of these parts, signed with a private key of the `cryptography` package.

    `header["alg"]` is one of `ALGORITHMS`. Raises AuthenticationFailedError for a key of the wrong
    kind.
    """
    signed = f"{_segment(header)}.{_segment(claims)}"
    signature = ALGORITHMS[header["alg"]](key, signed.encode())
    return f"{signed}.{_base64url(signature)}"


def _sign_rs256(key: Any, data: bytes) -> bytes:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding, rsa

    if not isinstance(key, rsa.RSAPrivateKey):
        raise AuthenticationFailedError("RS256 takes the private key of an RSA pair")
    signature: bytes = key.sign(data, padding.PKCS1v15(), hashes.SHA256())
    return signature


def _sign_es256(key: Any, data: bytes) -> bytes:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise AuthenticationFailedError("ES256 takes a private key on the curve P-256")
    # RFC 7518, 3.4: two numbers of 32 bytes, not the ASN.1 around them.
    first, second = decode_dss_signature(key.sign(data, ec.ECDSA(hashes.SHA256())))
    signature: bytes = first.to_bytes(32, "big") + second.to_bytes(32, "big")
    return signature


ALGORITHMS: dict[str, Callable[[Any, bytes], bytes]] = {"RS256": _sign_rs256, "ES256": _sign_es256}
"""The algorithms of Kafka's `sasl.oauthbearer.assertion.algorithm`."""


def _segment(value: Mapping[str, Any]) -> str:
    return _base64url(json.dumps(value, separators=(",", ":")).encode())


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
