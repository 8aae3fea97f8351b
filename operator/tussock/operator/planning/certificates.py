"""Checks whether a store has the certificates that it needs and, if the operator does not issue them, what is missing.

cert-manager says in the conditions of a `Certificate` how far it is, but not why: the reason is in the
`CertificateRequest` and the issuer, which the operator has no right to read. So a message says where to look.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from tussock.operator.manifests.bucket_access import managed_name
from tussock.operator.manifests.certificates import ca_secret, desired_certificates
from tussock.operator.manifests.settings import Defaults
from tussock.operator.manifests.transport_security import has_tls, tls_secret
from tussock.operator.planning.words.conditions import Reason, Verdict, problem_verdict, progress_verdict
from tussock.operator.planning.words.model import Manifest, Ref, seconds_since
from tussock.operator.planning.words.ownership import belongs, holder_of, uses
from tussock.operator.resources.object_store import ManagedStore
from tussock.operator.resources.store import StoreResource

__all__ = ["certificate_obstacle", "first_end_of", "foreign_secrets", "issuing_obstacle", "writes_into"]

SLOW_SECONDS = 60.0
"""An issuer in the cluster takes a second or two; one far away may take longer, and then the message disappears."""
_FILES = ("ca.crt", "tls.crt", "tls.key")


def certificate_obstacle(
    store: StoreResource,
    children: Mapping[Ref, Manifest],
    others: Mapping[Ref, Manifest],
    defaults: Defaults,
    now: datetime,
    *,
    has_cert_manager: bool,
) -> Verdict | None:
    """What prevents encryption; `None` if nothing does. `others` has the secrets of the namespace."""
    if not has_tls(store):
        return None
    if store.spec.tls.mode == "secret":
        return _user_secret_obstacle(store, others)
    wanted = sorted(certificate.secret for certificate in desired_certificates(store, (), defaults))
    absent = [name for name in wanted if Ref("Secret", name) not in others]
    if store.spec.tls.mode == "certManager":
        if not has_cert_manager:
            return problem_verdict(
                Reason.CERTIFICATES_NOT_ISSUED,
                "spec.tls.mode is certManager, but the operator cannot list Certificates of cert-manager. Install "
                "cert-manager, which the operator notices within a minute, or set another spec.tls.mode.",
            )
        return issuing_obstacle(store, wanted, children, others, now)
    if absent:
        return progress_verdict(Reason.RECONCILING, f"Waiting until the operator has issued {', '.join(absent)}.")
    return None


def foreign_secrets(
    store: StoreResource, others: Mapping[Ref, Manifest], metas: Sequence[str], defaults: Defaults
) -> list[Ref]:
    """Secrets that have the names of those drawn or issued for a store, but do not belong to it.

    The operator neither reads nor writes them: with a CA of another owner that owner would issue for us, and another
    owner's password would become that of our server. `others` has the secrets of the namespace.
    """
    names = [one.secret for one in desired_certificates(store, metas, defaults)]
    if names and store.spec.tls.mode == "managed":
        names.insert(0, ca_secret(store))
    if isinstance(store.spec.object_store.backend, ManagedStore):
        names.append(managed_name(store))
    found = [(ref, others[ref]) for ref in (Ref("Secret", name) for name in names) if ref in others]
    return [ref for ref, body in found if not belongs(body, holder_of(store))]


def writes_into(manifest: Manifest, secret: Ref) -> bool:
    """Whether a child is a Certificate that writes into the secret, or something that uses the secret."""
    if manifest["kind"] == "Certificate":
        return bool(manifest["spec"]["secretName"] == secret.name)
    return uses(manifest, secret)


def first_end_of(children: Mapping[Ref, Manifest]) -> str:
    """When the first of cert-manager's certificates expires (RFC 3339); empty if there are none."""
    found = [child.get("status") or {} for ref, child in children.items() if ref.kind == "Certificate"]
    return min((str(status["notAfter"]) for status in found if "notAfter" in status), default="")


def _user_secret_obstacle(store: StoreResource, others: Mapping[Ref, Manifest]) -> Verdict | None:
    name = tls_secret(store, "meta")
    secret = others.get(Ref("Secret", name))
    if secret is None:
        told = f"There is no Secret {name} in namespace {store.namespace}; create it (spec.tls.secretName)."
        return problem_verdict(Reason.SECRET_NOT_FOUND, told)
    if lacking := _missing_keys(secret):
        told = f"Secret {name}, which spec.tls names, has no key {', '.join(lacking)}. Add it."
        return problem_verdict(Reason.SECRET_KEY_MISSING, told)
    return None


def issuing_obstacle(
    store: StoreResource,
    wanted: Sequence[str],
    children: Mapping[Ref, Manifest],
    others: Mapping[Ref, Manifest],
    now: datetime,
) -> Verdict | None:
    """What keeps cert-manager from issuing certificates into the secrets `wanted`; `None` if all are there."""
    issuer = store.spec.tls.issuer_ref
    assert issuer is not None
    absent = [name for name in wanted if Ref("Secret", name) not in others]
    by = f"{issuer.kind} {issuer.name}"
    if absent:
        child = children.get(Ref("Certificate", absent[0]))
        told = f"Waiting until cert-manager has issued {', '.join(absent)} with {by}."
        if child is None or seconds_since(child["metadata"]["creationTimestamp"], now) < SLOW_SECONDS:
            return progress_verdict(Reason.RECONCILING, told)
        says = _issuing_reason(child)
        return problem_verdict(
            Reason.CERTIFICATES_NOT_ISSUED,
            f"cert-manager has not issued {', '.join(absent)} with {by}{says}. Check that this issuer exists "
            f"(spec.tls.issuerRef) and is ready; see `kubectl describe certificaterequests` for more.",
        )
    for name in wanted:
        if lacking := _missing_keys(others[Ref("Secret", name)]):
            return problem_verdict(
                Reason.CERTIFICATES_NOT_ISSUED,
                f"Secret {name} has no key {', '.join(lacking)}: {by} does not provide the CA of its certificates, "
                "so nodes could not check each other. Use an issuer that does, such as one of type `ca`.",
            )
    return None


def _missing_keys(secret: Manifest) -> list[str]:
    return [key for key in _FILES if key not in (secret.get("data") or {})]


def _issuing_reason(certificate: Mapping[str, Any]) -> str:
    """cert-manager's reason for a missing certificate, to be put into a sentence."""
    found = (certificate.get("status") or {}).get("conditions") or ()
    told = {condition["type"]: str(condition.get("message", "")).strip().rstrip(".") for condition in found}
    words = told.get("Issuing") or told.get("Ready") or ""
    return f" ({words})" if words else ""
