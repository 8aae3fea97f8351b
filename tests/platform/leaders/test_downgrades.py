"""A replica of an older release that starts on a store of a newer one: it ends, and its last line says why."""

import os
import struct
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import crc32c

from support.chaos.processes import COMMAND
from tussock.meta.log.format import FORMAT_VERSION
from tussock.operator.planning.words.conditions import Reason
from tussock.operator.planning.words.releases import newer_format
from tussock.operator.planning.words.rollout import pod_problem
from tussock.statestore import connect

TERMINATION_BYTES_MAX = 4096
"""As much of a container's log the kubelet keeps as its termination message."""


def write_as_newer_release(folder: Path) -> None:
    """Raise the format of the newest entry of the log."""
    newest = max(folder.glob("log/*"))
    data = bytearray(newest.read_bytes())[:-4]
    struct.pack_into("<H", data, 4, FORMAT_VERSION + 1)
    newest.write_bytes(bytes(data) + crc32c.crc32c(bytes(data)).to_bytes(4, "little"))


def test_a_replica_that_cannot_read_the_log_ends_and_says_so(tmp_path: Path) -> None:
    """The operator finds it in the status of the pod, whose kubelet keeps the end of its log."""
    with connect((tmp_path / "store").as_uri()) as store:
        store.create_table("kv")
    write_as_newer_release(tmp_path / "store")
    command = [*COMMAND, "meta", "serve", "--store", (tmp_path / "store").as_uri()]
    ended = subprocess.run(
        [*command, "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 1, ended.stderr
    said = ended.stderr[-TERMINATION_BYTES_MAX:]
    assert f"written in format version {FORMAT_VERSION + 1}, and this reader knows" in newer_format(said)
    state = {"terminated": {"exitCode": 1, "reason": "Error", "message": said}}
    container = {"name": "meta", "image": "node:old", "ready": False, "restartCount": 0, "state": state}
    pod = {"metadata": {"name": "s-meta-1"}, "status": {"containerStatuses": [container]}}
    found = pod_problem(pod, datetime.now(UTC))
    assert found is not None
    assert found.reason is Reason.DOWNGRADE_REFUSED
    assert "open the store with a newer Tussock. Set an image of the release that wrote it" in found.message
