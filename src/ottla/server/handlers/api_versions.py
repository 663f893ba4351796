"""ApiVersions, versions 0-4 (KIP-35, KIP-511, KIP-584): what this node serves, and its features.

Answers are derived from the table of handlers. From version 3 on the client names its software; odd names are refused
as Kafka does (INVALID_REQUEST). Version 3 hides features whose lowest level is 0, which old clients cannot parse.
"""

from __future__ import annotations

import re
from typing import Any

from ottla.errors import ErrorCode
from ottla.metadata.features import SUPPORTED
from ottla.protocol.messages import ApiKey
from ottla.server.api import RequestContext, Response, api
from ottla.server.handlers import TABLE

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@api(ApiKey.API_VERSIONS, versions=(0, 4))
def handle(context: RequestContext, request: Any) -> Response:
    version = context.api_version
    if version >= 3:
        name, software_version = request.client_software_name, request.client_software_version
        if not _SOFTWARE.fullmatch(name) or not _SOFTWARE.fullmatch(software_version):
            return {"error_code": ErrorCode.invalid_request}
        if context.session is not None:
            context.session.client_software = (name, software_version)
    image = context.node.image
    return {
        "error_code": ErrorCode.none,
        "api_keys": [
            {"api_key": key, "min_version": served.min_version, "max_version": served.max_version}
            for key, served in TABLE.items()
        ],
        "supported_features": [
            {"name": name, "min_version": low, "max_version": high}
            for name, (low, high) in SUPPORTED.items()
            if low > 0 or version >= 4
        ],
        "finalized_features_epoch": image.offset,
        "finalized_features": [
            {"name": name, "max_version_level": level, "min_version_level": level}
            for name, level in image.features.items()
        ],
        "zk_migration_ready": False,
    }
