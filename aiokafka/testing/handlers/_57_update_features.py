"""UpdateFeatures: raise or lower the levels of features (KIP-584)."""

from __future__ import annotations

from aiokafka.protocol.messages.cluster import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from aiokafka.testing import codes
from aiokafka.testing.handlers._common import await_controller
from aiokafka.testing.script import RequestContext

REQUEST = UpdateFeaturesRequest
_UPGRADE = 1


async def handle(context: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Change all levels, or none."""
    errno = await await_controller(context, request.timeout_ms / 1000)
    if errno:
        return refuse(context, request, errno)
    levels: dict[str, int] = {}
    for update in request.feature_updates:
        problem = _problem(context, update)
        if problem:
            response = refuse(context, request, codes.INVALID_UPDATE_VERSION)
            response.error_message = f"The update failed for {update.feature}: {problem}"
            return response
        levels[update.feature] = update.max_version_level
    if not request.validate_only:
        context.truth.set_levels(levels)
    results = []
    if context.api_version < 2:
        results = [UpdatableFeatureResult(feature=name, error_message=None) for name in levels]
    return UpdateFeaturesResponse(error_message=None, results=results)


def refuse(
    context: RequestContext, request: UpdateFeaturesRequest, errno: int
) -> UpdateFeaturesResponse:
    """Say no."""
    return UpdateFeaturesResponse(error_code=errno, error_message="refused", results=[])


def _problem(context: RequestContext, update: FeatureUpdateKey) -> str:
    profile = context.truth.profile
    if update.feature not in profile.features:
        return "no such feature"
    low, high, level = profile.features[update.feature]
    wanted = update.max_version_level
    if wanted and not low <= wanted <= high:
        return f"level {wanted} is not supported"
    down = update.allow_downgrade or update.upgrade_type != _UPGRADE
    return f"it would go down from {level}" if wanted < level and not down else ""
