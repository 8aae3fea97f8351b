"""Runs in a pod: tries which of the addresses in its arguments (`host:port`) open a TCP connection within 3 s."""

import json
import socket
import sys
from concurrent.futures import ThreadPoolExecutor

SECONDS = 3


def opens(address: str) -> bool:
    """Whether the address answers; a packet that a policy drops is never answered."""
    host, _, port = address.partition(":")
    try:
        socket.create_connection((host, int(port)), SECONDS).close()
    except TimeoutError:
        return False
    return True


addresses = sys.argv[1:]
with ThreadPoolExecutor(len(addresses)) as threads:
    print(json.dumps(dict(zip(addresses, threads.map(opens, addresses), strict=True))))
