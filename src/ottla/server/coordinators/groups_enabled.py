"""Which kinds of groups the cluster and this node serve."""

from __future__ import annotations

from typing import Final

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.features import GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION
from ottla.server.api import RequestContext

_FEATURES: Final = {"consumer": GROUP_VERSION, "share": SHARE_VERSION, "streams": STREAMS_VERSION}


def check_enabled(context: RequestContext, kind: str) -> None:
    """Raises UNSUPPORTED_VERSION where groups of this kind are switched off: by the cluster's feature, or by the node's
    `group.coordinator.rebalance.protocols`, which says nothing of share groups."""
    node = context.node
    if not node.image.features.get(_FEATURES[kind]) or (
        kind != "share" and kind not in node.config.group_coordinator_rebalance_protocols
    ):
        raise KafkaError(ErrorCode.unsupported_version)
