"""The most memory that a process has had.

`getrusage` does not tell it: Linux passes `ru_maxrss` on to what a process starts, so a program that a large one
starts seems as large at once, and a small growth in it is not seen at all.
"""

from pathlib import Path


def peak_bytes(pid: int | str = "self") -> int:
    """Bytes that were resident at most, since the process began its program."""
    told = Path(f"/proc/{pid}/status").read_text()
    return int(told.partition("VmHWM:")[2].split()[0]) << 10
