"""RemoveRaftVoter: take a controller out (KIP-853)."""

from __future__ import annotations

from aiokafka.protocol.messages.quorum import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from aiokafka.testing import codes
from aiokafka.testing.script import RequestContext

REQUEST = RemoveRaftVoterRequest


def handle(context: RequestContext, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
    """Remove a voter, where voters are not those of the configuration files."""
    if context.truth.profile.level("kraft.version") < 1:
        return refuse(context, request, codes.UNSUPPORTED_VERSION)
    voter = context.truth.voters.get(request.voter_id)
    if voter is None or voter != request.voter_directory_id:
        return refuse(context, request, codes.VOTER_NOT_FOUND)
    del context.truth.voters[request.voter_id]
    return RemoveRaftVoterResponse(error_message=None)


def refuse(
    context: RequestContext, request: RemoveRaftVoterRequest, errno: int
) -> RemoveRaftVoterResponse:
    """Say no."""
    return RemoveRaftVoterResponse(error_code=errno, error_message="refused")
