"""Write the golden metas of format version 3, whose filters lie apart: `python tests/golden/write_sst_v3.py FOLDER`.

The rows are those of version 1, of which `write_sst_v1.py` tells, and the `.data` objects are the same. So only metas
are in `sst/v3`; the same rules hold for them.
"""

import runpy
import sys
from pathlib import Path

from tussock.statestore.contract.records import data_path, meta_path
from tussock.statestore.sst.writer import SstWriter

_V1 = runpy.run_path(str(Path(__file__).with_name("write_sst_v1.py")))
CODECS = _V1["CODECS"]
golden = _V1["golden"]

WHOLE_FILTER_BYTES = 8
"""So small that filters of these few keys have several parts."""


def objects(compression: str) -> dict[str, tuple[bytes, bytes]]:
    """Name of each case -> `.data` and `.meta`."""
    written = {}
    for number, (name, case) in enumerate(golden(compression).items(), start=1):
        writer = SstWriter(
            case.spec,
            sst_bytes=1 << 20,
            epoch_inherited=case.inherited,
            one_object_bytes=0,
            whole_filter_bytes=WHOLE_FILTER_BYTES,
        )
        (sst,) = writer.write([case.arrow()])
        sst_id = f"{number:032x}"
        parts = sst.objects(sst_id)[1]
        written[name] = b"".join(parts[data_path(sst_id)]), b"".join(parts[meta_path(sst_id)])
    return written


def files(compression: str) -> dict[str, bytes]:
    """Name in the golden folder -> bytes."""
    return {f"{name}-{compression}.meta": meta for name, (_, meta) in objects(compression).items()}


if __name__ == "__main__":
    for codec in CODECS:
        for name, data in files(codec).items():
            (Path(sys.argv[1]) / name).write_bytes(data)
