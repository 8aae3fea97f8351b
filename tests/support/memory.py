"""The most memory that a process has had.

`getrusage` does not tell it: Linux passes `ru_maxrss` on to what a process starts, so a program that a large one
starts seems as large at once, and a small growth in it is not seen at all.
"""

import subprocess
import sys
from pathlib import Path

from support.children import child_environment


def peak_bytes(pid: int | str = "self") -> int:
    """Bytes that were resident at most, since the process began its program."""
    told = Path(f"/proc/{pid}/status").read_text()
    return int(told.partition("VmHWM:")[2].split()[0]) << 10


def bytes_told_by(program: str, *arguments: str) -> int:
    """Bytes that a program prints about itself, run as a separate process."""
    command = [sys.executable, "-c", program, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=child_environment())
    assert ran.returncode == 0, ran.stderr[-3000:]
    return int(ran.stdout)
