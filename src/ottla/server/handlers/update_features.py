"""UpdateFeatures, versions 0-2 (KIP-584; dry runs and kinds of downgrade from 1, KIP-778).

One feature that is refused refuses all; then the top level says why. From version 2 on there are no rows by feature.
"""

from __future__ import annotations

from typing import Any

from ottla.drivers.cooperative import run_yielding
from ottla.protocol.messages import ApiKey, plain_in_steps
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, Response, api
from ottla.server.forwarding import to_controller
from ottla.server.permissions import cluster


@api(ApiKey.UPDATE_FEATURES, versions=(0, 2), needs=(cluster(Operation.ALTER, at_controller=True),))
async def handle(context: RequestContext, request: Any) -> Response:
    answer = await to_controller(context, await run_yielding(plain_in_steps(request)))
    if context.api_version >= 2:
        answer = {name: value for name, value in answer.items() if name != "results"}
    return answer if answer.get("error_code") else {**answer, "error_message": None}  # a remote one may say why
