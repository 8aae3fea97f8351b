"""Taking an address for a port, and why it cannot be taken, in words for the operator of a node."""

import errno
import socket
from typing import Any

import grpc

from tussock.statestore.errors import InvalidOption

__all__ = ["bind_grpc", "unusable_address"]


def bind_grpc(server: Any, address: str, credentials: grpc.ServerCredentials | None, option: str = "listen") -> int:
    """Let a gRPC server take `host:port`, or a free port of the host if it is 0; returns the port.

    `InvalidOption` says why it cannot be taken: gRPC tells that in its log only, which is off. `option` is what names
    the address.
    """
    try:
        if credentials is None:
            port: int = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise unusable_address(address, _bind_obstacle(address) or error, option) from None
    return port


def unusable_address(address: str, error: OSError | RuntimeError, option: str) -> InvalidOption:
    """Why nobody can listen there, by what the system said when somebody tried, and what to do."""
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return InvalidOption(
            f"cannot listen on {address}: the address is in use; end the process that has it, or set {option} to "
            "another one, whose port 0 takes a free one"
        )
    why = error.strerror if isinstance(error, OSError) else None
    return InvalidOption(f"cannot listen on {address}: {why or error}; set {option} to an address of this machine")


def _bind_obstacle(address: str) -> OSError | None:
    """What is in the way at `host:port`; `None` if nothing is."""
    host, _, port = address.rpartition(":")
    try:
        places = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, place in places:
            with socket.socket(family, kind, protocol) as probe:
                # As gRPC does, so that connections of a former process are no obstacle.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place)
    except OSError as error:
        return error
    return None
