"""Whether PEM files are what they are given for, told by name before TLS fails without one."""

import ssl

from tussock.statestore.errors import InvalidOption

__all__ = ["check_authority", "check_pair"]


def check_pair(certificate: str, key: str) -> None:
    """`InvalidOption` unless these files are a certificate and its private key, which has no passphrase."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: b"")
    except (ssl.SSLError, ValueError) as error:
        raise InvalidOption(
            f"{certificate} and {key} are not a PEM certificate and its unencrypted key: {_reason(error)}",
            certificate,
            key,
        ) from None


def check_authority(path: str) -> None:
    """`InvalidOption` unless the file holds certificates to trust."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(path)
    except (ssl.SSLError, ValueError) as error:
        raise InvalidOption(f"{path} holds no PEM certificates: {_reason(error)}", path) from None


def _reason(error: Exception) -> str:
    return (error.reason if isinstance(error, ssl.SSLError) else str(error)) or "unreadable"
