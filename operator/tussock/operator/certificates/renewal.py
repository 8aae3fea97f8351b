"""Decides when certificates and their CA are due, and makes the secrets with the new ones.

A certificate is renewed when two thirds of its life are over, or when it no longer fits. The CA changes in three steps,
so that at every moment all pods trust all certificates, however late some pods read their files:

1. at two thirds of its life a next CA is made and trusted from then on; the old one still issues;
2. a day later the next CA starts to issue, and all certificates are renewed;
3. the old CA is trusted until it ends.

The secret of the CA has `tls.crt` and `tls.key` (the issuing CA), `next.crt` and `next.key` (the next one), and
`ca.crt`, all trusted CAs; `ca.crt` is in every certificate's secret too. Everything follows from the content of the
secrets and the time, so an operator that dies between two steps continues with the next.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from tussock.operator.certificates.issue import Pair, certificates_in, issue, new_authority, pem, was_issued_by
from tussock.operator.manifests.certificates import CA_SECONDS, Certificate, ca_secret, certificate_secret
from tussock.operator.manifests.labels import Manifest, metadata, secret_data
from tussock.operator.resources.common import Resource
from tussock.operator.resources.store import StoreResource

__all__ = ["SETTLE", "first_end", "is_due", "is_own_due", "renew_certificates", "renew_own_certificate"]

SETTLE = timedelta(days=1)
"""How long a CA is trusted before it issues. Kubelets bring files to pods within minutes; the rest is a margin."""

Secrets = Mapping[str, Mapping[str, str]]
"""The `data` of secrets by name, in base64 as in the API."""


class _Authorities(NamedTuple):
    issuer: Pair
    next: Pair | None
    trusted: tuple[str, ...]
    """PEM of each, the issuer first."""

    def files(self) -> dict[str, str]:
        found = {"tls.crt": self.issuer.certificate, "tls.key": self.issuer.key, "ca.crt": "".join(self.trusted)}
        return found | ({"next.crt": self.next.certificate, "next.key": self.next.key} if self.next else {})


def is_due(store: StoreResource, wanted: Sequence[Certificate], secrets: Secrets, now: datetime) -> bool:
    """Whether a secret has to be made or renewed; draws nothing. `secrets` are the existing ones."""
    if not wanted:
        return False
    found = _read(_texts(secrets.get(ca_secret(store), {})), now)
    if found is None or _step(found, now) != found or _needs_next(found, now):
        return True
    return not all(_fits(_texts(secrets.get(one.secret, {})), one, found, now) for one in wanted)


def renew_certificates(
    store: StoreResource, wanted: Sequence[Certificate], secrets: Secrets, now: datetime
) -> tuple[Manifest, ...]:
    """Issue what is due; returns the secrets to apply, the CA's first, and none if nothing is due."""
    if not is_due(store, wanted, secrets, now):
        return ()
    name = ca_secret(store)
    found = _read(_texts(secrets.get(name, {})), now)
    if found is None:
        first = new_authority(f"tussock {store.namespace}/{store.name}", now, CA_SECONDS)
        authorities = _Authorities(first, None, (first.certificate,))
    else:
        authorities = _step(found, now)
        if _needs_next(authorities, now):
            following = new_authority(f"tussock {store.namespace}/{store.name}", now, CA_SECONDS)
            authorities = _Authorities(authorities.issuer, following, (*authorities.trusted, following.certificate))
    manifests: list[Manifest] = []
    if authorities != found:
        manifests.append(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": metadata(store, name, store.name, "store"),
                "type": "Opaque",
                "data": secret_data(authorities.files()),
            }
        )
    manifests += [
        certificate_secret(store, store.name, one, _issue_files(authorities, one, now))
        for one in wanted
        if not _fits(_texts(secrets.get(one.secret, {})), one, authorities, now)
    ]
    return tuple(manifests)


def is_own_due(store: StoreResource, wanted: Certificate, secrets: Secrets, now: datetime) -> bool:
    """Whether the certificate of a client has to be made or renewed; false while the store has no CA to issue it.

    The store owns the CA and changes it; its clients follow the content of the CA's secret.
    """
    found = _read(_texts(secrets.get(ca_secret(store), {})), now)
    return found is not None and not _fits(_texts(secrets.get(wanted.secret, {})), wanted, found, now)


def renew_own_certificate(
    owner: Resource, store: StoreResource, wanted: Certificate, secrets: Secrets, now: datetime
) -> Manifest | None:
    """Issue the certificate of a job, a service or a declared client; returns its secret to apply.

    `None` if it is not due, or if the store has no CA.
    """
    found = _read(_texts(secrets.get(ca_secret(store), {})), now)
    if found is None or not is_own_due(store, wanted, secrets, now):
        return None
    return certificate_secret(owner, store.name, wanted, _issue_files(found, wanted, now))


def _issue_files(authorities: _Authorities, wanted: Certificate, now: datetime) -> dict[str, str]:
    pair = issue(authorities.issuer, wanted, now)
    return {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": "".join(authorities.trusted)}


def first_end(wanted: Sequence[Certificate], secrets: Secrets) -> datetime | None:
    """When the first of the existing certificates ends; `None` if none can be read."""
    found = [_leaf(_texts(secrets.get(one.secret, {}))) for one in wanted]
    return min((leaf.not_valid_after_utc for leaf in found if leaf is not None), default=None)


def _step(found: _Authorities, now: datetime) -> _Authorities:
    """The authorities after this step: the next CA issues if it was trusted for long enough, and expired ones go."""
    issuer, following = found.issuer, found.next
    if following is not None and certificates_in(following.certificate)[0].not_valid_before_utc + SETTLE <= now:
        issuer, following = following, None
    trusted = [text for text in found.trusted if certificates_in(text)[0].not_valid_after_utc > now]
    # The issuing CA comes first: people look at that one.
    ordered = sorted(trusted, key=lambda text: text != issuer.certificate)
    return _Authorities(issuer, following, tuple(ordered))


def _needs_next(found: _Authorities, now: datetime) -> bool:
    return found.next is None and _is_old(certificates_in(found.issuer.certificate)[0], now)


def _fits(files: Mapping[str, str], wanted: Certificate, authorities: _Authorities, now: datetime) -> bool:
    leaf = _leaf(files)
    issuer = certificates_in(authorities.issuer.certificate)[0]
    return (
        leaf is not None
        and files.get("ca.crt") == "".join(authorities.trusted)
        and was_issued_by(leaf, issuer)
        and not _is_old(leaf, now)
        and _names(leaf) == (wanted.dns_names, wanted.uris, wanted.ip_addresses)
        and leaf.subject == x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, wanted.common_name)])
        and _belongs(files.get("tls.key", ""), leaf)
    )


def _is_old(certificate: x509.Certificate, now: datetime) -> bool:
    begun, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now >= begun + (ends - begun) * 2 / 3


def _names(leaf: x509.Certificate) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Hosts, URIs and addresses of a certificate."""
    try:
        found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return (), (), ()
    hosts, uris = found.get_values_for_type(x509.DNSName), found.get_values_for_type(x509.UniformResourceIdentifier)
    addresses = found.get_values_for_type(x509.IPAddress)
    return tuple(hosts), tuple(uris), tuple(map(str, addresses))


def _belongs(key: str, certificate: x509.Certificate) -> bool:
    try:
        found: Any = serialization.load_pem_private_key(key.encode(), password=None)
    except (ValueError, TypeError):
        return False
    return bool(found.public_key() == certificate.public_key())


def _leaf(files: Mapping[str, str]) -> x509.Certificate | None:
    try:
        return certificates_in(files.get("tls.crt", ""))[0]
    except ValueError:
        return None


def _read(files: Mapping[str, str], now: datetime) -> _Authorities | None:
    """The content of the CA's secret; `None` if it cannot issue certificates.

    A CA that has expired unnoticed is replaced at once, since nothing trusts it any more.
    """
    try:
        issuer = Pair(files["tls.crt"], files["tls.key"])
        if not _belongs(issuer.key, certificates_in(issuer.certificate)[0]):
            return None
        following = Pair(files["next.crt"], files["next.key"]) if "next.crt" in files else None
        if following is not None and not _belongs(following.key, certificates_in(following.certificate)[0]):
            return None
        trusted = tuple(pem(one) for one in certificates_in(files["ca.crt"]))
        if certificates_in(issuer.certificate)[0].not_valid_after_utc <= now:
            return _Authorities(following, None, trusted) if following else None
    except (KeyError, ValueError):
        return None
    return _Authorities(issuer, following, trusted)


def _texts(data: Mapping[str, str]) -> dict[str, str]:
    """The files of a secret as text; leaves out what is not text, as if it were missing."""
    texts = {}
    for name, value in data.items():
        try:
            texts[name] = base64.b64decode(value, validate=True).decode()
        except (binascii.Error, ValueError):
            continue
    return texts
