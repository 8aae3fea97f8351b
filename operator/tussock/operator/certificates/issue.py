"""Issues certificates from a store's own CA, with elliptic keys (P-256), following the profile of RFC 5280."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tussock.operator.manifests.certificates import Certificate

__all__ = ["Pair", "certificates_in", "issue", "new_authority", "pem", "was_issued_by"]

_SKEW = timedelta(minutes=5)
"""A certificate is valid from a little before it was made, for nodes whose clocks are behind."""


class Pair(NamedTuple):
    """A certificate and its key, in PEM."""

    certificate: str
    key: str


def new_authority(name: str, now: datetime, seconds: int) -> Pair:
    """A self-signed CA, for certificates of nodes and not for further CAs."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(name, name, key.public_key(), now, seconds)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Pair(pem(builder.sign(key, hashes.SHA256())), _key_text(key))


def issue(authority: Pair, wanted: Certificate, now: datetime) -> Pair:
    """A new key and its certificate, signed by `authority`; it never outlasts that."""
    issuer = certificates_in(authority.certificate)[0]
    issuer_key = serialization.load_pem_private_key(authority.key.encode(), password=None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey), "our own authorities have such keys"
    key = ec.generate_private_key(ec.SECP256R1())
    seconds = min(wanted.seconds, int((issuer.not_valid_after_utc - now).total_seconds()))
    uses = {ExtendedKeyUsageOID.SERVER_AUTH: wanted.is_server, ExtendedKeyUsageOID.CLIENT_AUTH: not wanted.is_server}
    purposes = [purpose for purpose, is_wanted in uses.items() if is_wanted or wanted.is_both]
    names = issuer.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        _builder(wanted.common_name, str(names[0].value), key.public_key(), now, seconds)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
    )
    alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in wanted.dns_names]
    alternatives += [x509.IPAddress(ip_address(address)) for address in wanted.ip_addresses]
    alternatives += [x509.UniformResourceIdentifier(uri) for uri in wanted.uris]
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return Pair(pem(builder.sign(issuer_key, hashes.SHA256())), _key_text(key))


def certificates_in(text: str) -> Sequence[x509.Certificate]:
    """The certificates of a PEM text; `ValueError` if it holds none, or something else."""
    return x509.load_pem_x509_certificates(text.encode())


def pem(certificate: x509.Certificate) -> str:
    """A certificate as text."""
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def was_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether `authority` has signed the certificate, checked by its key and not only by its name."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _builder(
    name: str, issuer: str, key: ec.EllipticCurvePublicKey, now: datetime, seconds: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + timedelta(seconds=seconds))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _key_text(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
