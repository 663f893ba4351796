"""AlterUserScramCredentials, version 0 (KIP-554): the controller decides, the image has the credentials.

Clients send the salted password; the records hold only what proves it. Rows of the answer stand for themselves, one for
each user.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.errors import KafkaError
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, api
from ottla.server.connections.long_answers import RowsOf
from ottla.server.metadata.forwarding import forwarded
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import AlterUserScramCredentialsRequest
    from ottla.protocol.schemas.sent import AlterUserScramCredentialsResponse, AlterUserScramCredentialsResult


def _on_error(
    context: RequestContext, request: AlterUserScramCredentialsRequest, error: KafkaError
) -> AlterUserScramCredentialsResponse:
    row: AlterUserScramCredentialsResult = {"error_code": error.code, "error_message": error.message}
    names = dict.fromkeys([each.name for each in request.deletions] + [each.name for each in request.upsertions])
    return {"results": RowsOf(tuple(names), lambda name: {"user": name, **row})}


@api(
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    versions=(0, 0),
    needs=(cluster(Operation.ALTER, at_controller=True),),
    on_error=_on_error,
)
def handle(
    context: RequestContext, request: AlterUserScramCredentialsRequest
) -> Awaitable[AlterUserScramCredentialsResponse]:
    return forwarded(context, request)
