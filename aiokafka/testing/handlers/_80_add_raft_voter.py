"""AddRaftVoter: let a controller vote (KIP-853)."""

from __future__ import annotations

from aiokafka.protocol.messages.quorum import AddRaftVoterRequest, AddRaftVoterResponse
from aiokafka.testing import codes
from aiokafka.testing.script import RequestContext

REQUEST = AddRaftVoterRequest


def handle(context: RequestContext, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    """Add a voter, where voters are not those of the configuration files."""
    if context.truth.profile.level("kraft.version") < 1:
        return refuse(context, request, codes.UNSUPPORTED_VERSION)
    if request.voter_id in context.truth.voters:
        return refuse(context, request, codes.DUPLICATE_VOTER)
    context.truth.voters[request.voter_id] = bytes(request.voter_directory_id)
    return AddRaftVoterResponse(error_message=None)


def refuse(
    context: RequestContext, request: AddRaftVoterRequest, errno: int
) -> AddRaftVoterResponse:
    """Say no."""
    return AddRaftVoterResponse(error_code=errno, error_message="refused")
