"""The status that a job's driver reports, over HTTP from inside the cluster (`tussock.compute.driver.answers`)."""

import re

import aiohttp
import msgspec

from tussock.operator.planning.words.facts import DriverFact
from tussock.statestore.base.damage import UNREADABLE

__all__ = ["ask_driver"]

ANSWER_SECONDS = 3.0
_SHA256 = re.compile("[0-9a-f]{64}")
ANSWER_BYTES_MAX = 64 << 10
"""A status has a few hundred bytes; a user's pod answers, so the limit is needed."""
EXECUTORS_MAX = 100_000
SCALING_CHARACTERS_MAX = 300
"""As many as the status of a `Compute` takes."""


class _DriverStatus(msgspec.Struct, rename="camel"):
    committed_epoch: int = 0
    committed_batch: int = 0
    committed_ms: int = 0
    program_sha256: str = ""
    checkpoint_used_percent: int | None = None
    executors_wanted: int | None = None
    scaling: str = ""


async def ask_driver(address: str) -> DriverFact | None:
    """The status of the driver at `host:port`; `None` if it does not answer, as outside the cluster."""
    try:
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            # A redirect might lead anywhere in the cluster.
            session.get(f"http://{address}/status", allow_redirects=False) as answer,
        ):
            body = b""
            async for part in answer.content.iter_chunked(ANSWER_BYTES_MAX):
                body += part
                if len(body) > ANSWER_BYTES_MAX:
                    return None
            status = msgspec.json.decode(body, type=_DriverStatus)
    except (TimeoutError, aiohttp.ClientError, *UNREADABLE):
        return None
    program = status.program_sha256 if _SHA256.fullmatch(status.program_sha256) else ""
    used = status.checkpoint_used_percent
    used = used if used is not None and 0 <= used <= 100 else None
    wanted = status.executors_wanted
    wanted = wanted if wanted is not None and 0 <= wanted <= EXECUTORS_MAX else None
    told = "".join(sign for sign in status.scaling[:SCALING_CHARACTERS_MAX] if sign.isprintable())
    committed = status.committed_epoch, status.committed_batch, status.committed_ms
    return DriverFact(*committed, program, used, wanted, told)
