"""Why an address cannot be listened on, in words for the operator of a node."""

import errno
import socket

__all__ = ["bind_obstacle", "obstacle_of"]


def bind_obstacle(address: str) -> str:
    """What is in the way at `host:port`; empty if nothing is. gRPC tells it in its log only, which is off."""
    host, _, port = address.rpartition(":")
    try:
        places = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, place in places:
            with socket.socket(family, kind, protocol) as probe:
                # As gRPC does, so that connections of a former process are no obstacle.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place)
    except OSError as error:
        return obstacle_of(error)
    return ""


def obstacle_of(error: OSError) -> str:
    """What the system said when somebody tried."""
    return "the address is in use" if error.errno == errno.EADDRINUSE else str(error.strerror or error)
