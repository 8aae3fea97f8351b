"""Write the golden files of a destination: `python tests/golden/write_destination_v7.py FOLDER`.

They have the frame and the version of the log's format 7. `test_destination_format.py` fails if this script no longer
writes them byte for byte.
"""

import sys
from pathlib import Path

from tussock.meta.retention.destination.records import Catalogue, Manifest, encode_catalogue, encode_manifest
from tussock.meta.version.version import Version
from tussock.statestore.contract.backend import BackupInfo
from tussock.statestore.contract.copies import CopyInfo
from tussock.statestore.contract.records import Run, SstInfo, TableLevels, TableSpec, TableState

AT_MS = 1_700_000_000_000
STORE = "0" * 31 + "c"
SST = SstInfo(
    id=f"{AT_MS:012x}{1:020x}",
    smallest=b"a",
    largest=b"m",
    rows=3,
    deletes=1,
    data_bytes=4096,
    meta_bytes=512,
    epoch=1,
    min_epoch=1,
    max_epoch=1,
    meta_in_data=True,
)


def files() -> dict[str, bytes]:
    """Name in the golden folder -> bytes."""
    table = TableState(spec=TableSpec(id=1, name="kv"), levels=TableLevels(l0=(Run(ssts=(SST,)),)), last_epoch=1)
    version = Version(seq=14, max_committed_epoch=1, next_table_id=2, tables={1: table}, store_identity=STORE)
    info = BackupInfo(
        name="nightly",
        id="0" * 31 + "b",
        created_ms=AT_MS,
        owner="host:7:ab",
        comment="first",
        started_seq=14,
        seq=14,
        epoch=1,
        ssts=1,
        bytes=4608,
    )
    done = CopyInfo(
        name=info.name,
        id=info.id,
        part=1,
        owner="host:8:cd",
        begun_ms=AT_MS + 1,
        created_ms=info.created_ms,
        epoch=1,
        ssts=1,
        bytes=4608,
        comment="first",
        finished_ms=AT_MS + 2,
    )
    begun = CopyInfo(
        name="weekly",
        id="0" * 31 + "d",
        part=3,
        owner="host:8:cd",
        begun_ms=AT_MS + 3,
        created_ms=AT_MS + 2,
        epoch=1,
        ssts=1,
        bytes=4608,
    )
    catalogue = Catalogue(
        seq=3,
        id=bytes(range(16)),
        follows=bytes(range(16, 32)),
        writer="host:8:cd",
        at_ms=AT_MS + 3,
        store=STORE,
        url="s3://bucket/shop",
        copies={"nightly": done, "weekly": begun},
    )
    emptied = Catalogue(
        seq=4,
        id=bytes(range(32, 48)),
        follows=catalogue.id,
        writer="host:9",
        at_ms=AT_MS + 4,
        store=STORE,
        url="s3://b",
    )
    manifest = Manifest(info=info, version=version, places={SST.id: (1, bytes(range(32)))})
    return {
        "catalogue": encode_catalogue(catalogue),
        "catalogue.emptied": encode_catalogue(emptied),
        "manifest": encode_manifest(1, manifest),
    }


if __name__ == "__main__":
    for name, data in files().items():
        (Path(sys.argv[1]) / name).write_bytes(data)
