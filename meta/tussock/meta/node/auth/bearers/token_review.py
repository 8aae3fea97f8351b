"""Tokens of service accounts, proven by Kubernetes itself: its API `TokenReview` says whose a token is.

Only the API server knows whether the pod that a token was made for, and the account, still exist; so each token is
asked about, and asked about again. The service asks with the token of the account that it runs as, which needs the
right to `create` `tokenreviews` (the ClusterRole `system:auth-delegator` has it).

Cf. the reference of Kubernetes, *TokenReview v1 authentication.k8s.io*.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import urllib3

from tussock.meta.node.auth.bearers.claims import account_of
from tussock.statestore.base.system import System
from tussock.statestore.base.watched_files import WatchedFiles
from tussock.statestore.errors import InvalidOption, MetaUnavailable, Unauthenticated

__all__ = ["ACCOUNT_FOLDER", "TokenReviews", "api_of_pod"]

ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where a pod finds the token of its account, and the CA of the API."""
PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
SECONDS_MAX = 3.0
ANSWER_BYTES_MAX = 1 << 20
AGAIN_SECONDS = 3600.0
"""The API does not say how long a token is valid, and is asked again much earlier."""


class TokenReviews:
    """Asks one API about tokens. Safe to share between threads."""

    def __init__(self, system: System, api: str, audience: str, folder: str = ACCOUNT_FOLDER) -> None:
        """`api` is a URL; `folder` has `token` and `ca.crt`. `InvalidOption` if they cannot be read."""
        self._url = api.rstrip("/") + PATH
        self._audience = audience
        self._files = WatchedFiles([f"{folder}/token", f"{folder}/ca.crt"], _load, system)

    def check(self, token: str) -> tuple[Mapping[str, Any], float]:
        """The token's `account`, as `NAMESPACE/NAME`, and for how many seconds that holds at most.

        Raises `Unauthenticated` if the API says that it is no token for this audience, `MetaUnavailable` if it says
        nothing of use.
        """
        own, pool = self._files.current()
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [self._audience]},
        }
        status = self._ask(pool, own, json.dumps(request).encode())
        user, audiences = status.get("user"), status.get("audiences")
        if status.get("authenticated") is not True or not isinstance(user, dict):
            raise Unauthenticated(
                f"Kubernetes does not know the bearer token as one for the audience {self._audience!r}: it has ended, "
                "or its pod or service account is gone, or it is for another audience"
            )
        # An API server that knows no audiences takes each token for its own, and names none.
        if not isinstance(audiences, list) or self._audience not in audiences:
            raise Unauthenticated(f"Kubernetes does not say that the bearer token is for {self._audience!r}")
        account = account_of(user.get("username"))
        if not account:
            raise Unauthenticated("the bearer token is known to Kubernetes, and not that of a service account")
        return {"account": account}, AGAIN_SECONDS

    def _ask(self, pool: urllib3.PoolManager, own: str, body: bytes) -> Mapping[str, Any]:
        headers = {"Authorization": f"Bearer {own}", "Content-Type": "application/json", "Accept": "application/json"}
        try:
            answer = pool.request("POST", self._url, body=body, headers=headers, preload_content=False, redirect=False)
            try:
                data = answer.read(ANSWER_BYTES_MAX + 1, decode_content=True)
            finally:
                answer.release_conn()
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            # Not chained: the trace of the library's error holds the request, and with it both tokens.
            raise MetaUnavailable(
                f"the API of Kubernetes, which knows tokens of service accounts, cannot be asked: {_cause(error)}"
            ) from None
        if answer.status in (401, 403):
            raise MetaUnavailable(
                f"the API of Kubernetes does not let this service ask about tokens (status {answer.status}): bind its "
                "account to the ClusterRole system:auth-delegator"
            )
        try:
            told = json.loads(data) if answer.status in (200, 201) and len(data) <= ANSWER_BYTES_MAX else None
        except (ValueError, RecursionError):
            told = None
        if not isinstance(told, dict) or not isinstance(told.get("status"), dict):
            raise MetaUnavailable(
                f"the API of Kubernetes gave no TokenReview when it was asked about a token (status {answer.status})"
            )
        status: Mapping[str, Any] = told["status"]
        return status


def api_of_pod(environ: Mapping[str, str]) -> str:
    """The URL of the API as each pod is told it; empty outside of pods."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT_HTTPS", "443")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}" if host else ""


def _load(paths: Sequence[str]) -> tuple[str, urllib3.PoolManager]:
    token, authority = Path(paths[0]).read_text(encoding="utf-8").strip(), paths[1]
    if not token or not token.isprintable():
        raise InvalidOption(f"{paths[0]} holds no token of a service account")
    Path(authority).read_bytes()
    return token, urllib3.PoolManager(
        ca_certs=authority, cert_reqs="CERT_REQUIRED", timeout=urllib3.Timeout(total=SECONDS_MAX), retries=False
    )


def _cause(error: BaseException) -> str:
    """What went wrong, in a word: texts of the library have the URL, and some the request."""
    cause = error.args[1] if len(error.args) > 1 and isinstance(error.args[1], BaseException) else error
    return f"{type(cause).__name__}"
