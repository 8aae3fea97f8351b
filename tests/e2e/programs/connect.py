"""Runs in a pod: to which of the addresses of its arguments (`host:port`) a TCP connection opens within 3 s."""

import json
import socket
import sys
from concurrent.futures import ThreadPoolExecutor

SECONDS = 3


def opens(address: str) -> bool:
    """Whether somebody answers; a packet that a policy drops is never answered."""
    host, _, port = address.partition(":")
    try:
        socket.create_connection((host, int(port)), SECONDS).close()
    except TimeoutError:
        return False
    return True


addresses = sys.argv[1:]
with ThreadPoolExecutor(len(addresses)) as threads:
    print(json.dumps(dict(zip(addresses, threads.map(opens, addresses), strict=True))))
