"""Envelope, version 0: a client's request that a broker forwards, with the client's principal and address (KIP-590).

The request inside is a whole frame, and so is the answer. NOT_CONTROLLER is said of the envelope itself, so that the
broker asks again elsewhere and the client never sees it.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from ottla.drivers.cooperative import run_yielding
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey, MalformedRequest, RequestHeader
from ottla.protocol.principal import decode_principal
from ottla.security.acls import Operation
from ottla.server import dispatch
from ottla.server.api import OF_CONTROLLERS, Api, Call, RequestContext, api
from ottla.server.handlers import FORWARDABLE
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import EnvelopeRequest
    from ottla.protocol.schemas.sent import EnvelopeResponse


@api(ApiKey.ENVELOPE, versions=(0, 0), needs=(cluster(Operation.CLUSTER_ACTION),))
async def handle(context: RequestContext, request: EnvelopeRequest) -> EnvelopeResponse:
    node = context.node
    if node.metadata.controller is None or not node.metadata.controller.active:
        return {"error_code": ErrorCode.not_controller}
    frame = request.request_data
    try:
        header = messages.read_header(frame)
        served = OF_CONTROLLERS.table.get(header.api_key)
        if served is None or header.api_key not in FORWARDABLE:
            raise KafkaError(ErrorCode.invalid_request, f"API {header.api_key} cannot be forwarded")
        if not served.min_version <= header.api_version <= served.max_version:
            raise KafkaError(ErrorCode.unsupported_version)
        principal = decode_principal(request.request_principal or b"")
        host = str(ipaddress.ip_address(bytes(request.client_host_address)))
        inner = RequestContext(
            node,
            header.api_key,
            header.api_version,
            header.correlation_id,
            header.client_id,
            host,
            context.listener_name,
            principal,
        )
        loaded = OF_CONTROLLERS.load(header.api_key)
        call = Call(loaded, inner, await _decoded(loaded, header, frame))
    except MalformedRequest as error:
        raise KafkaError(ErrorCode.invalid_request, str(error)) from error
    except ValueError as error:  # what is no address
        raise KafkaError(ErrorCode.invalid_request, str(error)) from error
    try:
        data = await dispatch.answer(call)
    except KafkaError as error:
        return {"error_code": error.code}
    finally:
        held = [call.request]
        call.request = None
        if len(frame) > loaded.long_bytes:
            from ottla.server.connections.incremental_free import free_in_steps  # an idle node does without

            await run_yielding(free_in_steps(held))
    return {"error_code": ErrorCode.none, "response_data": data}


async def _decoded(loaded: Api, header: RequestHeader, frame: bytes) -> object:
    """The request inside. Raises MalformedRequest."""
    if len(frame) > loaded.long_bytes and loaded.decode_in_steps is not None:
        steps = loaded.decode_in_steps(header.api_version, memoryview(frame), header.body_offset)
        return await run_yielding(steps)
    return loaded.decode(header.api_version, frame, header.body_offset)
