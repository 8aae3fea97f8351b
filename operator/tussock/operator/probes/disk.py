"""How full the disk of a managed object store is, as its server says.

MinIO tells it to its own user, in the answer to `GET /minio/admin/v3/info`: `servers[].drives[]` have `totalspace`,
`usedspace`, `used_inodes` and `free_inodes` (madmin-go, `info-commands.go`, `Disk`). It counts as `df` does, so what a
file system reserves for root is no part of it. Its own limit is 99 % of the bytes: beyond it refuses to write
(`XMinioStorageFull`), and still deletes.
"""

import json
import math
from typing import Any

import urllib3
from minio import MinioAdmin
from minio.credentials.providers import StaticProvider
from minio.error import MinioAdminException

from tussock.operator.probes.bounded_http import BoundedPool
from tussock.operator.probes.bucket import ANSWER_SECONDS, CONNECT_SECONDS, S3Target

__all__ = ["used_percent"]


def used_percent(target: S3Target) -> int | None:
    """How much of the fullest disk of the server is used, rounded up: of its bytes or of its files.

    `None` if it does not say so, as another server than MinIO. Blocks for seconds; raises no error of the server.
    """
    scheme, _, host = target.endpoint.rpartition("://")
    try:
        with BoundedPool(CONNECT_SECONDS, ANSWER_SECONDS, target.call_seconds) as pool:
            admin = MinioAdmin(
                endpoint=host,
                credentials=StaticProvider(target.access_key, target.secret_key),
                region=target.region,
                secure=scheme != "http",
                http_client=pool,
            )
            found = json.loads(admin.info())
            pool.check()
            drives = [drive for server in found["servers"] for drive in server["drives"]]
            return max((percent for drive in drives if (percent := _percent_of(drive)) is not None), default=None)
    except (MinioAdminException, urllib3.exceptions.HTTPError, OSError, ValueError, LookupError, TypeError):
        # What is wrong with the bucket itself, its own probe says.
        return None


def _percent_of(drive: dict[str, Any]) -> int | None:
    """How full a drive is; `None` for one that does not say so, as one that is offline."""
    pairs = [
        (drive.get("usedspace", 0), drive.get("totalspace", 0)),
        # Some file systems do not count files, and say 0.
        (drive.get("used_inodes", 0), drive.get("used_inodes", 0) + drive.get("free_inodes", 0)),
    ]
    if pairs[0][1] <= 0:
        return None
    return min(100, max(math.ceil(100 * used / total) for used, total in pairs if total > 0))
