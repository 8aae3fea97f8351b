"""Removes from an image's Python environment what only developers need, and what Tussock never loads.

Run while an image is built: `slim.py ENVIRONMENT [EXTRA_PATTERN...]`. Patterns are relative to site-packages; one that
matches nothing is no error, since the images hold different packages.
"""

import shutil
import sys
from pathlib import Path

# Pattern -> why nothing misses it.
UNNEEDED = {
    "*/**/tests": "a package's own tests",
    "*/tests": "a package's own tests",
    "pyarrow/include": "headers, to compile against Arrow",
    "pyarrow/src": "sources of the same",
    "pyarrow/**/*.p[xy][xdi]": "sources of compiled modules",
    "pyarrow/libarrow_flight.so*": "a protocol of databases; Tussock has its own",
    "pyarrow/_flight*": "its module",
    "pyarrow/libarrow_s3.so*": "Arrow's own access to buckets; ours is obstore",
    "pyarrow/_s3fs*": "its module",
    "pyarrow/libarrow_python.so": "a name for linkers; what is loaded carries its version",
    "pyarrow/libarrow_python.so.*.*": "the same, under its full version",
    "numpy/f2py": "a compiler of Fortran modules",
    "numpy/distutils": "a builder of packages",
    "pyspark/examples": "examples",
    "pyspark/bin/*.cmd": "scripts for Windows",
    "pyspark/jars/spark-connect-client-jvm_*.jar": "the client of Spark Connect, in Scala",
}


def main() -> None:
    """Remove, and say how much."""
    [packages] = Path(sys.argv[1]).glob("lib/python3.*/site-packages")
    freed = 0
    for pattern in [*UNNEEDED, *sys.argv[2:]]:
        for path in list(packages.glob(pattern)):
            freed += size(path)
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
    sys.stdout.write(f"removed {freed / 1e6:.0f} MB of {packages}\n")


def size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


if __name__ == "__main__":
    main()
