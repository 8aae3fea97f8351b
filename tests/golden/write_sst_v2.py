"""Write the golden files of SST format version 2, an SST as one object: `python tests/golden/write_sst_v2.py FOLDER`.

The rows are those of version 1, of which `write_sst_v1.py` tells; the same rules hold for the files in `sst/v2`.
"""

import runpy
import sys
from pathlib import Path

from tussock.statestore.sst.writer import SstWriter

_V1 = runpy.run_path(str(Path(__file__).with_name("write_sst_v1.py")))
CODECS = _V1["CODECS"]
golden = _V1["golden"]


def files(compression: str) -> dict[str, bytes]:
    """Name in the golden folder -> bytes."""
    written: dict[str, bytes] = {}
    for number, (name, case) in enumerate(golden(compression).items(), start=1):
        writer = SstWriter(case.spec, sst_bytes=1 << 20, epoch_inherited=case.inherited, one_object_bytes=1 << 20)
        (sst,) = writer.write([case.arrow()])
        (parts,) = sst.objects(f"{number:032x}")[1].values()
        written[f"{name}-{compression}.data"] = b"".join(parts)
    return written


if __name__ == "__main__":
    for codec in CODECS:
        for name, data in files(codec).items():
            (Path(sys.argv[1]) / name).write_bytes(data)
