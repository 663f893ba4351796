"""Requests that are not only read: where they come from, and their body within limits."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

import anyio
from starlette.requests import Request

from ottla.console.asking import Invalid

SECONDS_MAX: Final = 10.0


def is_own(request: Request) -> bool:
    """Whether a form was sent from a page of this console. Browsers say where a form comes from; SameSite keeps the
    cookie away from others anyway."""
    site = request.headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        return False
    origin = request.headers.get("origin")
    try:
        return origin is None or urlsplit(origin).netloc == request.headers.get("host", "")
    except ValueError:  # such as of http://[
        return False


async def body_of(request: Request, bytes_max: int) -> bytes:
    """Raises Invalid."""
    body = bytearray()
    with anyio.move_on_after(SECONDS_MAX) as scope:
        async for part in request.stream():
            body += part
            if len(body) > bytes_max:
                raise Invalid(f"the body has more than {bytes_max:,} bytes")
    if scope.cancelled_caught:
        raise Invalid(f"a body takes at most {SECONDS_MAX:g} s")
    return bytes(body)
