"""Which certificates of a node end soon, or have ended: clients refuse it then, or it refuses all of them.

Python's TLS tells the time of a connection's certificate, and not that of a file. So what is needed of X.509 is read
here (RFC 5280, section 4.1): in each certificate the two times behind its issuer.
"""

import re
import ssl
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from tussock.statestore.base.system import System

__all__ = ["CertificateWatch", "EndingCertificate"]

SOON = timedelta(days=14)
SOON_SHARE = 6
"""Of one that is renewed often, the last sixth of its time: the operator renews at the last third."""
LOOK_SECONDS = 60.0
CERTIFICATES_MAX = 100
"""Of one file."""


class EndingCertificate(NamedTuple):
    """What is to be renewed."""

    path: str
    since_ms: int
    """From when on that is so."""
    text: str


class CertificateWatch:
    """Looks at the files again once a minute at most. In any thread: two that look at once find the same."""

    def __init__(self, paths: Sequence[str], system: System) -> None:
        """`paths`: of PEM files; empty ones are left out."""
        self._paths = [path for path in paths if path]
        self._system = system
        self._looked_at: float | None = None
        self._found: list[EndingCertificate] = []

    def ending(self) -> list[EndingCertificate]:
        """Certificates that end soon, or have ended; of a file that cannot be read nothing, as others tell of it."""
        now = self._system.monotonic()
        if self._looked_at is None or now >= self._looked_at + LOOK_SECONDS:
            self._looked_at = now
            self._found = [one for path in self._paths for one in _ending(path, self._system.now_ms())]
        return self._found


def _ending(path: str, now_ms: int) -> Iterator[EndingCertificate]:
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    try:
        found = _PEM.findall(Path(path).read_text(encoding="utf-8", errors="replace"))[:CERTIFICATES_MAX]
    except OSError:
        return
    for place, one in enumerate(found, 1):
        try:
            begins, ends = _times(ssl.PEM_cert_to_DER_cert(one))
        except (ValueError, IndexError):
            continue
        soon = ends - min(SOON, (ends - begins) / SOON_SHARE)
        if now < soon:
            continue
        has_ended = now >= ends
        which = path if len(found) == 1 else f"{path}, certificate {place}"
        told = "has ended, and nobody takes it any more" if has_ended else "ends"
        since = ends if has_ended else soon
        text = f"{which} {told}: {ends:%Y-%m-%d %H:%M} UTC; renew it, the file is read again by itself"
        yield EndingCertificate(path, int(since.timestamp() * 1000), text)


_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_VERSION, _SEQUENCE, _UTC_TIME = 0xA0, 0x30, 0x17


def _times(der: bytes) -> tuple[datetime, datetime]:
    """From when to when a certificate is valid; `ValueError` or `IndexError` for bytes that are none."""
    _, whole, _ = _part(der, 0)
    _, signed, _ = _part(whole, 0)
    at = 0
    if signed[0] == _VERSION:
        _, _, at = _part(signed, at)
    for _ in ("number", "algorithm", "issuer"):
        _, _, at = _part(signed, at)
    tag, validity, _ = _part(signed, at)
    if tag != _SEQUENCE:
        raise ValueError("no times stand behind the issuer")
    tag, begins, at = _part(validity, 0)
    other, ends, _ = _part(validity, at)
    return _time(tag, begins), _time(other, ends)


def _part(data: bytes, at: int) -> tuple[int, bytes, int]:
    """Tag and content of the element of DER at that place, and where the next one begins."""
    tag, size, at = data[at], data[at + 1], at + 2
    if size & 0x80:
        count = size & 0x7F
        size, at = int.from_bytes(data[at : at + count], "big"), at + count
    return tag, data[at : at + size], at + size


def _time(tag: int, text: bytes) -> datetime:
    # Years of two digits are those from 1950 on.
    shown = text.decode("ascii")
    if tag == _UTC_TIME:
        shown = ("19" if shown[:2] >= "50" else "20") + shown
    return datetime.strptime(shown, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
