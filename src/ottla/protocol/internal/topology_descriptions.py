"""What a member tells of its application's topology (KIP-1331), as it is kept in the record of the group's topology.

The format is that of the struct in StreamsGroupTopologyDescriptionUpdate 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ottla.protocol.internal.codec import decode, encode
from ottla.protocol.schemas.records import TopologyDescription, TopologyNode

SOURCE: Final = 1
PROCESSOR: Final = 2
SINK: Final = 3
"""Types of nodes."""


def nodes_of(description: TopologyDescription) -> Iterator[TopologyNode]:
    for subtopology in description.subtopologies:
        yield from subtopology.nodes
    for each in description.global_stores:
        yield from (each.source, each.processor)


def topics_of(node: TopologyNode) -> tuple[str, ...]:
    return node.source_topics if node.sink_topic is None else (*node.source_topics, node.sink_topic)


def encode_description(description: TopologyDescription) -> bytes:
    return encode(description, 0)


def decode_description(buffer: bytes) -> TopologyDescription:
    """Raises MalformedRecord."""
    return decode(TopologyDescription, 0, buffer)
