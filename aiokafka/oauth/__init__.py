"""Tokens for SASL/OAUTHBEARER: from an identity provider, from a file, for Amazon MSK.

Each class is an `AbstractTokenProvider` for the option `sasl_oauth_token_provider`.
"""

from __future__ import annotations

from aiokafka.oauth._assertion import FileAssertion, SignedAssertion
from aiokafka.oauth._cache import CachedTokenProvider, Token
from aiokafka.oauth._file import FileTokenProvider
from aiokafka.oauth._grants import ClientCredentialsTokenProvider, JwtBearerTokenProvider
from aiokafka.oauth._msk import MskIamTokenProvider

__all__ = [
    "CachedTokenProvider",
    "ClientCredentialsTokenProvider",
    "FileAssertion",
    "FileTokenProvider",
    "JwtBearerTokenProvider",
    "MskIamTokenProvider",
    "SignedAssertion",
    "Token",
]
