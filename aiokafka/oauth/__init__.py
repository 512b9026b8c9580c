"""Token providers for SASL/OAUTHBEARER: identity providers, files, and clouds.

Each class is an `AbstractTokenProvider` for the option `sasl_oauth_token_provider`.
"""

from __future__ import annotations

from aiokafka.oauth._clouds import AzureManagedIdentityTokenProvider, GcpMetadataTokenProvider
from aiokafka.oauth._file import FileAssertion, FileTokenProvider, SignedAssertion
from aiokafka.oauth._grants import ClientCredentialsTokenProvider, JwtBearerTokenProvider
from aiokafka.oauth._msk import MskIamTokenProvider
from aiokafka.oauth._tokens import CachedTokenProvider, Token

__all__ = [
    "AzureManagedIdentityTokenProvider",
    "CachedTokenProvider",
    "ClientCredentialsTokenProvider",
    "FileAssertion",
    "FileTokenProvider",
    "GcpMetadataTokenProvider",
    "JwtBearerTokenProvider",
    "MskIamTokenProvider",
    "SignedAssertion",
    "Token",
]
