"""Old import path and constructors; the home is `aiokafka.protocol.messages.metadata`."""

from collections.abc import Iterable

from aiokafka.protocol.messages import metadata as home
from aiokafka.protocol.messages.metadata import MetadataResponse

__all__ = ["MetadataRequest", "MetadataRequest_v1", "MetadataRequest_v4", "MetadataResponse"]


class MetadataRequest(home.MetadataRequest):
    """A metadata request from the names of topics.

    topics: None asks for all topics, an empty list for none.
    allow_auto_topic_creation: whether the broker may create topics that are missing.
    """

    def __init__(
        self, topics: Iterable[str] | None = None, allow_auto_topic_creation: bool | None = None
    ) -> None:
        wanted = None if topics is None else [home.MetadataRequestTopic(name=t) for t in topics]
        super().__init__(
            topics=wanted, allow_auto_topic_creation=allow_auto_topic_creation is not False
        )


class MetadataRequest_v1(MetadataRequest, versions="1", flexible="9+"):
    """The same, sent as version 1 only."""

    __init__ = MetadataRequest.__init__


class MetadataRequest_v4(MetadataRequest, versions="4", flexible="9+"):
    """The same, sent as version 4 only."""

    __init__ = MetadataRequest.__init__
