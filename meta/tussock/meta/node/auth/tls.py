"""TLS of the gRPC server, with certificates that are replaced without a restart.

gRPC asks for the certificates before every handshake, so a new connection gets the new ones; connections that are
open stay as they are, also those of clients whose CA was taken out. Only a pair that fits is used.
"""

from collections.abc import Sequence
from pathlib import Path

import grpc

from tussock.statestore.base.pem import check_authority, check_pair
from tussock.statestore.base.system import System
from tussock.statestore.base.watched_files import WatchedFiles
from tussock.statestore.errors import InvalidOption

__all__ = ["server_credentials"]


def server_credentials(certificate: str, key: str, client_ca: str, system: System) -> grpc.ServerCredentials:
    """Credentials out of PEM files; with `client_ca` (else empty) every client has to show a certificate of it.

    Raises `InvalidOption` if a file cannot be read, or the pair does not fit.
    """
    paths = [certificate, key] + [client_ca] * bool(client_ca)
    files = WatchedFiles(paths, _load, system)
    first = given = files.current()

    def newest() -> grpc.ServerCertificateConfiguration | None:
        nonlocal given
        before, given = given, files.current()
        return None if given is before else given

    # Its stubs do not know that `None` stands for no change.
    return grpc.dynamic_ssl_server_credentials(
        first,
        newest,  # type: ignore[arg-type]
        require_client_authentication=bool(client_ca),
    )


def _load(paths: Sequence[str]) -> grpc.ServerCertificateConfiguration:
    contents = [Path(path).read_bytes() for path in paths]
    check_pair(paths[0], paths[1])
    for authority in paths[2:]:
        check_authority(authority)
    # The check reads the files itself. If they were replaced meanwhile, it says nothing about what was read before.
    if [Path(path).read_bytes() for path in paths] != contents:
        raise InvalidOption(f"{', '.join(paths)} change at this moment")
    certificate, key = contents[:2]
    return grpc.ssl_server_certificate_configuration([(key, certificate)], contents[2] if contents[2:] else None)
