"""Tokens by which this node logs in at other nodes (OAUTHBEARER): from an identity provider, by client credentials.

As Kafka's `ClientCredentialsJwtRetriever` (KIP-768, KIP-1139). A token is used for all connections until four fifths of
its time are over.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import urlencode

from ottla.config.secret import Secret
from ottla.drivers.nodes.identity_provider import Endpoint, ask, in_a_thread
from ottla.errors import ErrorCode, KafkaError

USED_SHARE: Final = 0.8
LIFE_SECONDS_DEFAULT: Final = 60.0
"""Life of a token whose provider does not say how long it holds."""
LIFE_SECONDS_MAX: Final = 86_400.0


class ClientCredentials(NamedTuple):
    """Name and secret of this node at the identity provider."""

    client_id: str
    client_secret: Secret
    scope: str | None = None


class TokenSource:
    """Fetches tokens when they are needed. All methods belong to the event loop's thread."""

    def __init__(self, endpoint: Endpoint, credentials: ClientCredentials, post: Callable[..., bytes] = ask) -> None:
        self._endpoint = endpoint
        self._credentials = credentials
        self._post = post
        self._token = Secret("")
        self._until = 0.0
        """In the loop's time."""
        self._fetching = asyncio.Lock()

    async def token(self) -> Secret:
        """A token that holds for a while. Raises KafkaError (SASL_AUTHENTICATION_FAILED)."""
        loop = asyncio.get_running_loop()
        async with self._fetching:  # connections that are made together share one
            if loop.time() >= self._until:
                try:
                    self._token, life_s = await in_a_thread(self._fetch)
                except (OSError, ValueError) as error:
                    what = f"no token from {self._endpoint.url}: {error}"
                    raise KafkaError(ErrorCode.sasl_authentication_failed, what) from None
                self._until = loop.time() + USED_SHARE * life_s
            return self._token

    def _fetch(self) -> tuple[Secret, float]:
        """Blocks. Raises OSError or ValueError."""
        credentials = self._credentials
        asked = {"grant_type": "client_credentials"} | ({"scope": credentials.scope} if credentials.scope else {})
        known = base64.b64encode(f"{credentials.client_id}:{credentials.client_secret.reveal()}".encode()).decode()
        headers = {"Authorization": f"Basic {known}", "Content-Type": "application/x-www-form-urlencoded"}
        answer = json.loads(self._post(self._endpoint, urlencode(asked).encode(), headers))
        token = answer.get("access_token") if isinstance(answer, dict) else None
        if not isinstance(token, str) or not token:
            raise ValueError("the answer has no access_token")
        life_s = answer.get("expires_in")
        if isinstance(life_s, bool) or not isinstance(life_s, int | float) or not 0 < life_s < LIFE_SECONDS_MAX:
            life_s = LIFE_SECONDS_DEFAULT
        return Secret(token), float(life_s)
