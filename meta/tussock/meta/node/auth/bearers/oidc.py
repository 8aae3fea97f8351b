"""Tokens of OIDC issuers, proven by the issuer's keys.

An issuer publishes where its keys are (OpenID Connect Discovery 1.0, section 4), and signs its tokens with one of them
(RFC 7515, RFC 7517). PyJWT checks signature and times; what is decided here is which keys and algorithms count.

Only algorithms with two keys, a secret and a public one, are taken: with `HS256` the published key would be the secret,
and `none` signs nothing.
"""

import json
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import urllib3

from tussock.statestore.base.system import System
from tussock.statestore.errors import MetaUnavailable, Unauthenticated

__all__ = ["ALGORITHMS", "OidcTokens"]

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
LEEWAY_SECONDS = 30
"""By which the clocks of issuer and service may differ."""
KEYS_SECONDS = 600.0
"""How long keys are used without a look: that long one that the issuer has taken back still counts."""
NEW_KEY_SECONDS = 10.0
"""Between two looks for keys that are not known: an issuer that has changed its key is followed at once, and a flood of
tokens with made-up keys costs it little."""
SECONDS_MAX = 3.0
ANSWER_BYTES_MAX = 256 << 10
KEYS_MAX = 64


class _Keys(NamedTuple):
    """Keys of one issuer."""

    keys: tuple[Mapping[str, Any], ...]
    at: float


class OidcTokens:
    """Proves tokens of the issuers that are asked about. Safe to share between threads."""

    def __init__(self, system: System, *, authority: str = "", allow_http: bool = False) -> None:
        """`authority`: file with CAs of issuers; empty for those of the machine. `allow_http` is for tests."""
        self._system = system
        self._authority = authority
        self._allow_http = allow_http
        self._lock = threading.Lock()
        self._known: dict[str, _Keys] = {}

    def check(self, token: str) -> tuple[Mapping[str, Any], float]:
        """What the token says, and for how many seconds it does.

        The caller has seen to it that the issuer that it claims is one to trust, and checks audience and subject.
        Raises `Unauthenticated` for a token that is not the issuer's, or has ended; `MetaUnavailable` if the issuer's
        keys cannot be had.
        """
        import jwt  # only where an issuer is declared

        try:
            header = jwt.get_unverified_header(token)
            issuer = str(jwt.decode(token, options={"verify_signature": False}).get("iss"))
        except jwt.InvalidTokenError as error:
            raise Unauthenticated(f"the bearer token is none: {error}") from None
        algorithm = header.get("alg")
        if algorithm not in ALGORITHMS:
            raise Unauthenticated(f"the bearer token is not signed by one of the algorithms {', '.join(ALGORITHMS)}")
        key = self._key(issuer, header.get("kid"), str(algorithm))
        try:
            claims = jwt.decode(
                token,
                jwt.PyJWK(dict(key), algorithm=str(algorithm)),
                algorithms=[str(algorithm)],
                issuer=issuer,
                leeway=LEEWAY_SECONDS,
                # Which audience is right depends on the client; `DeclaredClients` looks at it.
                options={"require": ["exp", "iss", "sub", "aud"], "verify_aud": False},
            )
        except (jwt.InvalidTokenError, jwt.PyJWKError) as error:
            raise Unauthenticated(f"the bearer token of {issuer} is not taken: {error}") from None
        return claims, float(claims["exp"]) + LEEWAY_SECONDS - self._system.now_ms() / 1000

    def _key(self, issuer: str, key_id: object, algorithm: str) -> Mapping[str, Any]:
        """The issuer's key of that id, or its only one for a token that names none."""
        now = self._system.monotonic()
        with self._lock:
            known = self._known.get(issuer)
        if known is None or now - known.at >= KEYS_SECONDS:
            known = self._fetch(issuer, now)
        found = _fitting(known.keys, key_id, algorithm)
        if not found and now - known.at >= NEW_KEY_SECONDS:
            found = _fitting(self._fetch(issuer, now).keys, key_id, algorithm)
        if len(found) != 1:
            raise Unauthenticated(f"the bearer token names no key of {issuer} for {algorithm}")
        return found[0]

    def _fetch(self, issuer: str, now: float) -> _Keys:
        where = self._get(issuer, issuer.rstrip("/") + "/.well-known/openid-configuration")
        # Else one issuer could speak for another (OpenID Connect Discovery 1.0, section 4.3).
        if where.get("issuer") != issuer:
            raise MetaUnavailable(f"the configuration of the issuer {issuer} is that of another one")
        keys = self._get(issuer, str(where.get("jwks_uri"))).get("keys")
        if not isinstance(keys, list) or len(keys) > KEYS_MAX:
            raise MetaUnavailable(f"the issuer {issuer} publishes no keys, or more than {KEYS_MAX}")
        found = _Keys(tuple(key for key in keys if isinstance(key, dict)), now)
        with self._lock:
            # As many as the clients file declares issuers, for others are not asked.
            self._known[issuer] = found
        return found

    def _get(self, issuer: str, url: str) -> Mapping[str, Any]:
        scheme = urlsplit(url).scheme
        if scheme != "https" and not (scheme == "http" and self._allow_http):
            raise MetaUnavailable(f"the issuer {issuer} has no https:// address for its keys, and others are not used")
        pool = urllib3.PoolManager(
            ca_certs=self._authority or None,
            cert_reqs="CERT_REQUIRED",
            timeout=urllib3.Timeout(total=SECONDS_MAX),
            retries=False,
        )
        try:
            answer = pool.request("GET", url, preload_content=False, redirect=False)
            try:
                data = answer.read(ANSWER_BYTES_MAX + 1, decode_content=True)
            finally:
                answer.release_conn()
            told = json.loads(data) if answer.status == 200 and len(data) <= ANSWER_BYTES_MAX else None
        except (urllib3.exceptions.HTTPError, OSError, ValueError, RecursionError) as error:
            raise MetaUnavailable(
                f"the keys of the issuer {issuer} cannot be had: {type(error).__name__}; its tokens are not taken "
                "meanwhile"
            ) from None
        finally:
            pool.clear()
        if not isinstance(told, dict):
            raise MetaUnavailable(
                f"the keys of the issuer {issuer} cannot be had: status {answer.status}, and no JSON object of up to "
                f"{ANSWER_BYTES_MAX} bytes; its tokens are not taken meanwhile"
            )
        return told


def _fitting(keys: tuple[Mapping[str, Any], ...], key_id: object, algorithm: str) -> list[Mapping[str, Any]]:
    """The keys that may have signed: for signatures, for this algorithm if they name one, and of that id if any."""
    return [
        key
        for key in keys
        if key.get("use", "sig") == "sig"
        and key.get("alg", algorithm) == algorithm
        and (key_id is None or key.get("kid") == key_id)
    ]
