"""UpdateFeatures, versions 0-2 (KIP-584; dry runs and kinds of downgrade from 1, KIP-778).

One feature that is refused refuses all; then the top level says why. From version 2 on there are no rows by feature.
"""

from __future__ import annotations

from typing import Any

from ottla.controller.features import update_features
from ottla.drivers.cooperative import run_yielding
from ottla.protocol.messages import ApiKey
from ottla.protocol.stepwise import plain
from ottla.server.api import RequestContext, Response, api


@api(ApiKey.UPDATE_FEATURES, versions=(0, 2))
async def handle(context: RequestContext, request: Any) -> Response:
    asked = await run_yielding(plain(request))
    answer = await context.node.controller.submit(lambda image, now: update_features(image, asked))
    if context.api_version >= 2:
        del answer["results"]
    return {**answer, "error_message": None}
