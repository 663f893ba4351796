"""One OpenID provider: authorization code flow with PKCE (OpenID Connect Core 1.0; RFC 7636, RFC 9207, RFC 9700).

Fail closed. What the provider says counts only after the signature of the id token is checked with its published keys
and the token names this provider, this client and the nonce of this very login. No error has a token, code or secret.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from ottla.console.access.provider_settings import ProviderSettings
from ottla.console.access.roles import Identity
from ottla.console.hung import ANSWER_S
from ottla.drivers.nodes.identity_provider import Endpoint, Refusal, ask, check_url
from ottla.errors import OttlaError
from ottla.security.sasl.jwt import InvalidToken, KeySet, Rules, Token, UnknownKey, checked, parse_keys, signed_claims

TOKEN_S: Final = 10.0
"""For the whole answer to a code, which counts once, and of what the provider publishes where nothing is
known yet."""
METADATA_FRESH_S: Final = 3600.0
KEYS_FRESH_S: Final = 3600.0
KEYS_AGAIN_S: Final = 10.0
"""Between two readings of the keys that unknown keys cause: anyone can send a token with one."""
UNKNOWN_LIFE_S: Final = 300.0
"""Life of an access token that does not say it."""
GROUPS_MAX: Final = 1_000
TOKEN_CHARS_MAX: Final = 64 * 1024
_HASHES: Final = {"256": hashlib.sha256, "384": hashlib.sha384, "512": hashlib.sha512}


class LoginFailed(OttlaError):
    """The provider did not let the user in, or what it said is not believed; the text says why."""


class ProviderAway(OttlaError):
    """The provider cannot be asked now."""


class Metadata(NamedTuple):
    """What the discovery document says (OpenID Connect Discovery 1.0)."""

    authorization: str
    token: str
    jwks: str
    end_session: str | None
    names_issuer: bool
    """Whether answers name the issuer (RFC 9207)."""
    secret_by_form: bool
    """Whether the client's secret goes into the form, as the provider takes no HTTP Basic."""


@dataclass(frozen=True)
class Tokens:
    """What a login gave. Secrets: never shown or logged."""

    identity: Identity
    credential: str
    """What the brokers are shown."""
    ends_at_s: float
    """When that ends, by the wall clock."""
    id_token: str
    refresh: str | None


class Provider:
    """One provider, for any thread."""

    def __init__(
        self,
        settings: ProviderSettings,
        redirect_url: str,
        *,
        claims: Callable[[], frozenset[str]] = frozenset,
        now: Callable[[], float] = time.time,
        asked: Callable[..., bytes] = ask,
    ) -> None:
        """`claims` are those that roles look at. `now` is the wall clock, as tokens have it."""
        self.settings, self.redirect_url = settings, redirect_url
        self.now = now
        self._claims, self._ask = claims, asked
        self._lock = threading.Lock()
        self._metadata: tuple[float, Metadata] | None = None
        self._keys: tuple[float, KeySet] | None = None

    def login_url(self, state: str, nonce: str, verifier: str) -> str:
        """Where the browser goes. Raises ProviderAway, LoginFailed."""
        settings = self.settings
        digest = hashlib.sha256(verifier.encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        return _with_query(
            self.metadata().authorization,
            {
                **settings.parameters,
                "response_type": "code",
                "client_id": settings.client_id,
                "redirect_uri": self.redirect_url,
                "scope": " ".join(settings.scopes),
                "state": state,
                "nonce": nonce,
                "code_challenge": challenge,
                "code_challenge_method": "S256",
            },
        )

    def finish(self, code: str, verifier: str, nonce: str, issuer: str | None) -> Tokens:
        """The tokens for a code. `issuer` is what the answer with the code says. Raises ProviderAway, LoginFailed."""
        self.check_issuer(issuer)
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.redirect_url,
            "code_verifier": verifier,
        }
        answer = self._tokens(form)
        id_token = _text(answer, "id_token")
        if id_token is None:
            raise LoginFailed(f"{self.settings.title} gave no id token: it must know this client for scope openid")
        return self._believed(answer, id_token, nonce)

    def refresh(self, tokens: Tokens) -> Tokens:
        """Raises ProviderAway, and LoginFailed where the login has ended there."""
        answer = self._tokens({"grant_type": "refresh_token", "refresh_token": tokens.refresh or ""})
        id_token = _text(answer, "id_token")
        found = self._believed(answer, id_token or tokens.id_token, None, is_new=id_token is not None)
        if found.identity.subject != tokens.identity.subject or found.identity.name != tokens.identity.name:
            raise LoginFailed(f"{self.settings.title} renewed the login of another user")
        return found if found.refresh is not None else _with_refresh(found, tokens.refresh)

    def of_program(self, token: str) -> Tokens:
        """What an access token says that a program shows. Raises LoginFailed, ProviderAway."""
        claims, found = self._verified(token, (self.settings.audience,))
        return Tokens(self._identity(claims, found.subject), token, found.expires_at_s, "", None)

    def logout_url(self, tokens: Tokens, back: str) -> str | None:
        """Where a browser ends the login at the provider too (RP-Initiated Logout 1.0); None where it cannot."""
        try:
            where = self.metadata().end_session
        except (LoginFailed, ProviderAway):
            return None
        if where is None:
            return None
        return _with_query(
            where,
            {
                "id_token_hint": tokens.id_token,
                "client_id": self.settings.client_id,
                "post_logout_redirect_uri": back,
            },
        )

    def check_issuer(self, given: str | None) -> None:
        """The answer comes from this provider and no other one (RFC 9207). Raises LoginFailed, ProviderAway."""
        if given is None and self.metadata().names_issuer:
            raise LoginFailed("the answer does not say which identity provider it comes from")
        if given is not None and given != self.settings.issuer:
            raise LoginFailed("the answer comes from another identity provider than the login began with")

    def metadata(self) -> Metadata:
        """Raises ProviderAway, LoginFailed."""
        with self._lock:
            known = self._metadata
        if known is not None and time.monotonic() - known[0] < METADATA_FRESH_S:
            return known[1]
        try:
            url = self.settings.issuer.rstrip("/") + "/.well-known/openid-configuration"
            found = self._parsed(_json(self._get(url, read_s=_wait_s(known))))
        except (ProviderAway, LoginFailed):
            if known is None:
                raise
            found = known[1]  # what was right an hour ago is, until the provider is back
        with self._lock:
            self._metadata = time.monotonic(), found
        return found

    def _parsed(self, document: Mapping[str, Any]) -> Metadata:
        title = self.settings.title
        if document.get("issuer") != self.settings.issuer:
            raise LoginFailed(f"{title} says that it is another issuer than the console's file of providers names")
        urls = {}
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri", "end_session_endpoint"):
            value = document.get(name)
            if value is None and name == "end_session_endpoint":
                continue
            try:
                urls[name] = check_url(name, value if isinstance(value, str) else "")
            except OttlaError as error:
                raise LoginFailed(f"{title} has a document that cannot be used: {error}") from None
        challenges = document.get("code_challenge_methods_supported", ["S256"])
        if not isinstance(challenges, list) or "S256" not in challenges:
            raise LoginFailed(f"{title} does not know PKCE with S256, without which no login is safe")
        ways = document.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        by_form = isinstance(ways, list) and "client_secret_basic" not in ways and "client_secret_post" in ways
        return Metadata(
            urls["authorization_endpoint"],
            urls["token_endpoint"],
            urls["jwks_uri"],
            urls.get("end_session_endpoint"),
            document.get("authorization_response_iss_parameter_supported") is True,
            by_form,
        )

    # What the provider is asked

    def _get(
        self, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, read_s: float = TOKEN_S
    ) -> bytes:
        """Raises ProviderAway, Refusal."""
        host = urlsplit(url).netloc
        try:
            endpoint = Endpoint(url, ANSWER_S, read_s, self.settings.ca_file, read_s)
            return self._ask(endpoint, body, headers)
        except Refusal as error:
            if body is not None and 400 <= error.status < 500:
                raise
            raise ProviderAway(f"{self.settings.title} answered with status {error.status} ({host})") from None
        except (OSError, ValueError) as error:
            raise ProviderAway(f"{self.settings.title} cannot be asked ({host}): {error}") from None

    def _tokens(self, form: Mapping[str, str]) -> dict[str, Any]:
        settings, metadata = self.settings, self.metadata()
        fields = dict(form)
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if settings.client_secret is None:
            fields["client_id"] = settings.client_id
        elif metadata.secret_by_form:
            fields |= {"client_id": settings.client_id, "client_secret": settings.client_secret.reveal()}
        else:  # each part is encoded as in a form (RFC 6749, 2.3.1)
            pair = f"{quote(settings.client_id, safe='')}:{quote(settings.client_secret.reveal(), safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        try:
            answer = _json(self._get(metadata.token, urlencode(fields).encode(), headers))
        except Refusal as error:
            raise LoginFailed(f"{settings.title} gave no token{_reason(error.body)}") from None
        if str(answer.get("token_type", "")).lower() != "bearer":
            raise LoginFailed(f"{settings.title} gave a token of a kind that is not known")
        return answer

    def _key_set(self, *, again: bool) -> KeySet:
        with self._lock:
            known = self._keys
        age_s = float("inf") if known is None else time.monotonic() - known[0]
        if known is not None and age_s < (KEYS_AGAIN_S if again else KEYS_FRESH_S):
            return known[1]
        try:
            found = parse_keys(self._get(self.metadata().jwks, read_s=_wait_s(known)))
        except ValueError as error:
            raise LoginFailed(f"{self.settings.title} publishes no keys that can be used: {error}") from None
        except ProviderAway:
            if known is None:
                raise
            found = known[1]
        with self._lock:
            self._keys = time.monotonic(), found
        return found

    # What is believed

    def _verified(self, token: str, audiences: tuple[str, ...]) -> tuple[dict[str, Any], Token]:
        settings = self.settings
        rules = Rules(settings.issuer, audiences, settings.skew_s, subject_claim=settings.user_claim)
        try:
            try:
                claims = signed_claims(token, self._key_set(again=False))
            except UnknownKey:
                claims = signed_claims(token, self._key_set(again=True))
            return claims, checked(claims, rules, self.now())
        except InvalidToken as error:
            raise LoginFailed(f"a token of {settings.title} is not believed: {error}") from None

    def _believed(self, answer: Mapping[str, Any], id_token: str, nonce: str | None, *, is_new: bool = True) -> Tokens:
        """`nonce` is None when tokens are renewed. An id token that is not new was believed before, and may have
        ended since."""
        settings = self.settings
        access = _text(answer, "access_token")
        if access is None:
            raise LoginFailed(f"{settings.title} gave no access token")
        if is_new:
            claims, found = self._verified(id_token, (settings.client_id,))
            self._check_id_token(claims, id_token, access, nonce)
            name, id_ends_at_s = found.subject, found.expires_at_s
        else:
            claims = _claims_of(id_token)
            name, id_ends_at_s = str(claims.get(settings.user_claim)), float(claims.get("exp", 0))
        if settings.credential == "id_token":
            credential, ends_at_s = id_token, id_ends_at_s
        else:
            credential, ends_at_s = access, self._end_of(answer, access)
        return Tokens(self._identity(claims, name), credential, ends_at_s, id_token, _text(answer, "refresh_token"))

    def _check_id_token(self, claims: Mapping[str, Any], id_token: str, access: str, nonce: str | None) -> None:
        """Raises LoginFailed."""
        settings = self.settings
        if nonce is not None:
            given = claims.get("nonce")
            if not isinstance(given, str) or not hmac.compare_digest(given.encode(), nonce.encode()):
                raise LoginFailed(f"a token of {settings.title} is not believed: it is of another login (nonce)")
        audience, party = claims.get("aud"), claims.get("azp")
        if (party is not None or (isinstance(audience, list) and len(audience) > 1)) and party != settings.client_id:
            raise LoginFailed(f"a token of {settings.title} is not believed: it was issued to another client (azp)")
        given_hash = claims.get("at_hash")
        if given_hash is not None:
            bits = str(json.loads(_decoded(id_token.split(".")[0])).get("alg"))[-3:]
            half = _HASHES[bits](access.encode()).digest()
            wanted = base64.urlsafe_b64encode(half[: len(half) // 2]).rstrip(b"=").decode()
            if not isinstance(given_hash, str) or not hmac.compare_digest(given_hash.encode(), wanted.encode()):
                raise LoginFailed(f"a token of {settings.title} is not believed: the access token is another (at_hash)")

    def _end_of(self, answer: Mapping[str, Any], access: str) -> float:
        life = answer.get("expires_in")
        if isinstance(life, str) and life.isdecimal() and len(life) < 12:
            life = int(life)
        if isinstance(life, int | float) and not isinstance(life, bool) and 0 < life < 10**10:
            return self.now() + life
        end = _claims_of(access).get("exp")
        is_number = isinstance(end, int | float) and not isinstance(end, bool)
        return float(end) if is_number else self.now() + UNKNOWN_LIFE_S  # type: ignore[arg-type]

    def _identity(self, claims: Mapping[str, Any], name: str) -> Identity:
        settings = self.settings
        subject = f"{settings.issuer} {claims.get('sub')}"
        groups = _texts(claims.get(settings.groups_claim))
        others = {each: _texts(claims.get(each)) for each in sorted(self._claims()) if each in claims}
        return Identity(name, settings.id, subject, groups, others)


def _wait_s(known: object) -> float:
    """For all of what the provider publishes: pages wait no longer where there is an older one to go by."""
    return TOKEN_S if known is None else ANSWER_S


def _with_refresh(tokens: Tokens, refresh: str | None) -> Tokens:
    return Tokens(tokens.identity, tokens.credential, tokens.ends_at_s, tokens.id_token, refresh)


def _with_query(url: str, values: Mapping[str, str]) -> str:
    return f"{url}{'&' if urlsplit(url).query else '?'}{urlencode(values)}"


def _json(data: bytes) -> dict[str, Any]:
    """Raises LoginFailed."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise LoginFailed("the identity provider's answer is not a JSON object")
    return found


def _text(answer: Mapping[str, Any], name: str) -> str | None:
    """A token, which has to be one word of ASCII. Raises LoginFailed."""
    value = answer.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not value or len(value) > TOKEN_CHARS_MAX:
        raise LoginFailed(f"the identity provider's {name} is not a token")
    if not (value.isascii() and value.isprintable()) or " " in value:
        raise LoginFailed(f"the identity provider's {name} is not a token")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    """The texts of a claim: one, or a list of them."""
    many = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return tuple(each for each in many[:GROUPS_MAX] if isinstance(each, str))


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _claims_of(token: str) -> dict[str, Any]:
    """What a JWT says, unverified; empty for a token of another form."""
    parts = token.split(".")
    try:
        found = json.loads(_decoded(parts[1])) if len(parts) == 3 else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _reason(body: bytes) -> str:
    """The error of RFC 6749, 5.2, where there is one: it names no secret."""
    try:
        code = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    is_code = isinstance(code, str) and code.isascii() and code.isprintable() and len(code) <= 100
    return f" ({code})" if is_code else ""
