"""An OpenID provider of threads: codes with PKCE, id and access tokens that it signs, refresh tokens that change, and
a logout. It checks what a provider has to check, and each part can be made to lie."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

CLIENT, SECRET = "ottla-console", "s:cret %+"
AUDIENCE = "kafka"


@dataclass
class OpenIdProvider:
    """`running()` serves it. A user is logged in at once: what is tested is what comes after."""

    redirects: set[str] = field(default_factory=set)
    """The redirect URIs that are registered."""
    subject: str = "alice"
    claims: dict[str, Any] = field(default_factory=dict)
    """Further claims of the id token."""
    lies: dict[str, Any] = field(default_factory=dict)
    """Claims of the id token that are not as they should be; None leaves one out."""
    document: dict[str, Any] = field(default_factory=dict)
    """What the discovery document has besides, or instead."""
    is_public: bool = False
    life_s: int = 300
    has_refresh: bool = True
    algorithm: str = "ES256"
    refusal: str = ""
    """What the authorization endpoint answers instead of a code."""
    answer_issuer: str | None = ""
    """`iss` of the answer with the code; empty is the own, None leaves it out."""
    issued: set[str] = field(default_factory=set)
    """All access and id tokens."""
    asked: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Why requests were refused."""
    ended: list[dict[str, str]] = field(default_factory=list)
    """What the logout was asked."""

    def __post_init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.stranger = ec.generate_private_key(ec.SECP256R1())
        self._codes: dict[str, dict[str, str]] = {}
        self._refreshes: set[str] = set()
        self._count = 0
        self._lock = threading.Lock()

    @contextmanager
    def running(self, host: str = "127.0.0.1") -> Iterator[OpenIdProvider]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider._get(self)

            def do_POST(self) -> None:
                provider._post(self)

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://{host}:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def _get(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        query = dict(parse_qsl(parts.query))
        self.asked.append(parts.path)
        if parts.path == "/.well-known/openid-configuration":
            _json(handler, 200, self._document())
        elif parts.path == "/jwks":
            _json(handler, 200, {"keys": [{**_jwk(self.key), "kid": "one", "use": "sig"}]})
        elif parts.path == "/authorize":
            self._authorize(handler, query)
        elif parts.path == "/logout":
            self.ended.append(query)
            _redirect(handler, query["post_logout_redirect_uri"])
        else:
            _json(handler, 404, {})

    def _document(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/jwks",
            "end_session_endpoint": f"{self.issuer}/logout",
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
            **self.document,
        }

    def _authorize(self, handler: BaseHTTPRequestHandler, query: dict[str, str]) -> None:
        if query.get("client_id") != CLIENT or query.get("redirect_uri") not in self.redirects:
            self.refused.append("redirect_uri")
            _json(handler, 400, {"error": "invalid_request"})
            return
        issuer = {} if self.answer_issuer is None else {"iss": self.answer_issuer or self.issuer}
        back = {"state": query["state"], **issuer}
        if query.get("code_challenge_method") != "S256" or not query.get("code_challenge") or not query.get("nonce"):
            self.refused.append("PKCE")
            back["error"] = "invalid_request"
        elif self.refusal:
            back["error"] = self.refusal
        else:
            with self._lock:
                self._count += 1
                code = f"code-{self._count}"
                self._codes[code] = query
            back["code"] = code
        _redirect(handler, f"{query['redirect_uri']}?{urlencode(back)}")

    def _post(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["content-length"]))
        form = dict(parse_qsl(body.decode()))
        self.asked.append(f"{handler.path} {form.get('grant_type')}")
        if not self._knows(handler, form):
            self.refused.append("client")
            _json(handler, 401, {"error": "invalid_client"})
            return
        with self._lock:
            if form["grant_type"] == "authorization_code":
                begun = self._codes.pop(form["code"], None)  # a code is for one time
                is_right = begun is not None and self._fits(begun, form)
                nonce = "" if begun is None else begun["nonce"]
            else:
                is_right = form["refresh_token"] in self._refreshes
                self._refreshes.discard(form["refresh_token"])
                nonce = ""
            if not is_right:
                self.refused.append("grant")
                _json(handler, 400, {"error": "invalid_grant"})
                return
            _json(handler, 200, self._tokens(nonce))

    def _knows(self, handler: BaseHTTPRequestHandler, form: Mapping[str, str]) -> bool:
        if self.is_public:
            return form.get("client_id") == CLIENT
        scheme, _, text = handler.headers.get("authorization", "").partition(" ")
        name, _, secret = base64.b64decode(text).decode().partition(":")
        return scheme == "Basic" and (unquote(name), unquote(secret)) == (CLIENT, SECRET)

    def _fits(self, begun: Mapping[str, str], form: Mapping[str, str]) -> bool:
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        return begun["code_challenge"] == _encoded(digest) and begun["redirect_uri"] == form.get("redirect_uri")

    def _tokens(self, nonce: str) -> dict[str, Any]:
        self._count += 1
        access = self.access_token()
        half = hashlib.sha256(access.encode()).digest()[:16]
        claims = {
            **self._common(),
            "aud": CLIENT,
            "nonce": nonce,
            "at_hash": _encoded(half),
            **self.claims,
            **self.lies,
        }
        id_token = self.signed({name: value for name, value in claims.items() if value is not None})
        refresh = {}
        if self.has_refresh:
            refresh = {"refresh_token": f"refresh-{self._count}"}
            self._refreshes.add(refresh["refresh_token"])
        return {
            "access_token": access,
            "id_token": id_token,
            "token_type": "Bearer",
            "expires_in": self.life_s,
            **refresh,
        }

    def access_token(self, **claims: Any) -> str:
        return self.signed({**self._common(), "aud": AUDIENCE, **claims})

    def _common(self) -> dict[str, Any]:
        now = int(time.time())
        self._count += 1
        return {"iss": self.issuer, "sub": self.subject, "iat": now, "exp": now + self.life_s, "jti": str(self._count)}

    def signed(self, claims: Mapping[str, Any]) -> str:
        if self.algorithm == "none":
            made = jwt.encode(dict(claims), "", "none")
        elif self.algorithm == "HS256":
            # With the public key as the secret, which everyone has.
            made = jwt.encode(dict(claims), _jwk(self.key)["x"], "HS256", headers={"kid": "one"})
        elif self.algorithm == "stranger":
            made = jwt.encode(dict(claims), self.stranger, "ES256", headers={"kid": "one"})
        else:
            made = jwt.encode(dict(claims), self.key, self.algorithm, headers={"kid": "one"})
        self.issued.add(made)
        return made

    def revoke(self) -> None:
        """No login is renewed any more."""
        with self._lock:
            self._refreshes.clear()


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _jwk(key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
    return jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True)


def _json(handler: BaseHTTPRequestHandler, status: int, value: Any) -> None:
    data = json.dumps(value).encode()
    handler.send_response(status)
    handler.send_header("content-type", "application/json")
    handler.send_header("content-length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


def _redirect(handler: BaseHTTPRequestHandler, url: str) -> None:
    handler.send_response(303)
    handler.send_header("location", url)
    handler.send_header("content-length", "0")
    handler.end_headers()
