"""What the node of a service says of its application, by its page's status."""

import asyncio
import os
import ssl
from collections.abc import Mapping
from typing import Any

import aiohttp
import msgspec

from tussock.operator.planning.words.facts import NodeFact
from tussock.operator.probes.platform import Certificates

__all__ = ["ANSWER_SECONDS", "ask_node"]

ANSWER_SECONDS = 3.0
ANSWER_BYTES_MAX = 8 << 20
"""The status of a program with many operators and hot keys has some hundred kilobytes."""
TEXT_MAX = 100
NAME_MAX = 300
TROUBLE_MAX = 1000
COUNT_MAX = 2**31 - 1


class _Pump(msgspec.Struct):
    """A feed, or an output."""

    trouble: str = ""


class _NodeStatus(msgspec.Struct):
    """The parts of a status that the operator uses (`docs/service.md` has all), of any layer."""

    application: str
    layer: str
    state: str
    version: str = ""
    workers: int = 0
    workers_joined: int = 0
    waiting: int = 0
    outstanding: int = 0
    uncommitted: int = 0
    feeds: dict[str, _Pump] = {}
    outputs: dict[str, _Pump] = {}


async def ask_node(
    address: str, certificates: Certificates | None, server_name: str, seconds: float = ANSWER_SECONDS
) -> NodeFact:
    """Ask the node at `host:port` for its status, over TLS if there are certificates; raises none of its errors.

    The node's certificate must have `server_name`. All of it takes at most these seconds. A node replies
    from its start on, also while it recovers.
    """
    scheme = "http" if certificates is None else "https"
    timeout = aiohttp.ClientTimeout(total=seconds)
    try:
        secured: dict[str, Any] = {}
        if certificates is not None:
            secured = {"ssl": await asyncio.to_thread(_context, certificates), "server_hostname": server_name}
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            # A redirect might lead anywhere in the cluster.
            session.get(f"{scheme}://{address}/status", allow_redirects=False, **secured) as answer,
        ):
            if answer.status != 200:
                return NodeFact(f"{address} answered {answer.status} {answer.reason}.")
            body = b""
            async for part in answer.content.iter_chunked(1 << 20):
                body += part
                if len(body) > ANSWER_BYTES_MAX:
                    return NodeFact(f"{address} sent a status of more than {ANSWER_BYTES_MAX >> 20} MiB.")
        return _fact(msgspec.json.decode(body, type=_NodeStatus))
    except TimeoutError:
        return NodeFact(f"{address} did not answer.", is_blind=True)
    except (aiohttp.ClientError, ssl.SSLError, OSError, ValueError) as error:
        return NodeFact(f"{address}: {type(error).__name__}: {str(error)[:NAME_MAX]}.")


def _context(certificates: Certificates) -> ssl.SSLContext:
    """TLS with the operator's certificate, which the library reads from a file only: one in memory, on no disk."""
    context = ssl.create_default_context(cadata=certificates.ca.decode())
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    file = os.memfd_create("certificate")
    try:
        os.write(file, certificates.certificate + b"\n" + certificates.key)
        context.load_cert_chain(f"/proc/self/fd/{file}", password=lambda: b"")
    finally:
        os.close(file)
    return context


def _fact(status: _NodeStatus) -> NodeFact:
    return NodeFact(
        application=status.application[:NAME_MAX],
        layer=status.layer[:TEXT_MAX],
        version=status.version[:TEXT_MAX],
        state=status.state[:TEXT_MAX],
        workers=_count(status.workers),
        workers_joined=_count(status.workers_joined),
        waiting=_count(status.waiting),
        outstanding=_count(status.outstanding),
        uncommitted=_count(status.uncommitted),
        trouble=(_trouble("Feed", status.feeds) or _trouble("Output", status.outputs))[:TROUBLE_MAX],
    )


def _count(found: int) -> int:
    return min(max(found, 0), COUNT_MAX)


def _trouble(what: str, pumps: Mapping[str, _Pump]) -> str:
    return next((f"{what} {name}: {one.trouble}" for name, one in sorted(pumps.items()) if one.trouble), "")
