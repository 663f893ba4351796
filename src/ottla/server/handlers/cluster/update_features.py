"""UpdateFeatures, versions 0-2 (KIP-584; dry runs and kinds of downgrade from 1, KIP-778).

One feature that is refused refuses all; then the top level says why. From version 2 on there are no rows by feature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, api
from ottla.server.metadata.forwarding import forwarded
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import UpdateFeaturesRequest
    from ottla.protocol.schemas.sent import UpdateFeaturesResponse


@api(ApiKey.UPDATE_FEATURES, versions=(0, 2), needs=(cluster(Operation.ALTER, at_controller=True),))
async def handle(context: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    answer: UpdateFeaturesResponse = await forwarded(context, request)
    if context.api_version >= 2:
        answer.pop("results", None)
    if not answer.get("error_code"):  # a remote one may say why
        answer["error_message"] = None
    return answer
