"""Where in the user's code an error was raised.

It looks at nothing that a user's class could have replaced: of an error that raises whatever is asked of it, too, it
has to be told where it came from. No line of source, no argument and no variable is told, as they may be secret.
"""

import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType, TracebackType

__all__ = ["place_of", "stack_of"]

FRAMES_MAX = 20
"""Of a stack, the innermost."""
TEXT_MAX = 200
"""Characters of a place, and of a file in a stack."""
_traceback_of = vars(BaseException)["__traceback__"].__get__
_CYTHON = (".pyx", ".pxi")
_ENGINE, _FROZEN = "tussock", "<frozen"
_LIBRARY = (str(Path(os.__file__).parent), sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
"""Folders of Python's modules. A user's may have the name of one of them, such as `calendar`."""


def place_of(error: BaseException) -> str:
    """Such as `shop/orders.py:17`: the innermost line of the user's code; empty where none of it ran.

    The file is as its module is named. What is of Python's library, or was installed, is the user's for code that was
    installed beside it.
    """
    last: tuple[FrameType, int] | None = None
    for found in _frames(error):
        last = found
    if last is None:
        return ""
    frame, line = last
    return f"{_file_of(_module_of(frame), frame.f_code)[-TEXT_MAX:]}:{line}"


def stack_of(error: BaseException) -> str:
    """The way to that line as Python shows it, without the source: a line for each call, the innermost last."""
    lines = [
        f'File "{_clean(at.f_code.co_filename)}", line {line}, in {at.f_code.co_name}' for at, line in _frames(error)
    ]
    return "\n".join(lines[-FRAMES_MAX:])


def _frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """The calls that are of the user's code, with their lines, from the function on."""
    at: TracebackType | None = _traceback_of(error)
    is_installed: bool | None = None
    while at is not None:
        frame = at.tb_frame
        module, file = _module_of(frame), frame.f_code.co_filename
        top = module.partition(".")[0]
        is_library = top in sys.stdlib_module_names and file.startswith(_LIBRARY)
        if not (top == _ENGINE or is_library or file.startswith(_FROZEN)):
            installed = _is_installed(frame)
            if is_installed is None and not (installed and file.endswith(_CYTHON)):
                # The function itself.
                is_installed = installed
            if is_installed or not installed:
                yield frame, at.tb_lineno
        at = at.tb_next


def _module_of(frame: FrameType) -> str:
    name = dict.get(frame.f_globals, "__name__")
    return name if type(name) is str else ""


def _is_installed(frame: FrameType) -> bool:
    # A frame of Cython, such as one of Arrow's, names a file of its source; only its module knows where it is.
    of_module = dict.get(frame.f_globals, "__file__")
    files = (frame.f_code.co_filename, of_module if type(of_module) is str else "")
    return any("site-packages" in file or "dist-packages" in file for file in files)


def _file_of(module: str, code: CodeType) -> str:
    parts = code.co_filename.replace("\\", "/").split("/")
    depth = module.count(".") + 1 + (parts[-1] == "__init__.py")
    return _clean("/".join(parts[-depth:]))


def _clean(file: str) -> str:
    return file.encode(errors="backslashreplace").decode()[-TEXT_MAX:]
