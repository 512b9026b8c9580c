"""ApiVersions: what the broker can do."""

from __future__ import annotations

import re

from aiokafka.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from aiokafka.testing import codes
from aiokafka.testing.script import RequestContext
from aiokafka.testing.telemetry import has_receiver

REQUEST = ApiVersionsRequest
_TELEMETRY = (71, 72)
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Return ranges and features of the release that the cluster plays."""
    if context.api_version >= 3:
        names = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE.fullmatch(name) for name in names):
            return refuse(context, request, codes.INVALID_REQUEST)
    profile = context.profile
    features = profile.features.items()
    finalized = context.truth.profile
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in sorted(profile.ranges.items())
            if key not in _TELEMETRY or has_receiver(context.truth)
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high, _) in features
            if low > 0 or context.api_version >= 4  # older clients choke on 0 (KAFKA-17011)
        ],
        finalized_features_epoch=context.truth.features_epoch if profile.features else -1,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in ((name, finalized.level(name)) for name, _ in features)
            if level > 0
        ],
    )


def refuse(context: RequestContext, request: ApiVersionsRequest, errno: int) -> ApiVersionsResponse:
    """Say no."""
    return ApiVersionsResponse(error_code=errno, api_keys=[])
