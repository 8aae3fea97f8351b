"""Sends a program's functions to another process of the same Python, and tells two programs apart.

What a module has under its name is sent by name, as `pickle` does, and so is a module that a function uses. Functions
inside others, and functions and classes of the main script, are sent as their code; what they use of the main script
goes along, as far as it can be pickled.
"""

import dis
import importlib
import importlib.metadata
import io
import marshal
import pickle
import sys
import types
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tussock.compute.functions.program.directory import Operators
from tussock.statestore import InvalidOption

__all__ = ["code_number", "fingerprint", "pack_program", "program_version", "unpack_program"]

PROGRAM_BYTES_MAX = 32 << 20


def program_version() -> str:
    """Of Tussock and of Python, as both ends have to be of one."""
    return f"{importlib.metadata.version('tussock')}, Python {sys.version.split()[0]}"


def pack_program(parts: Any, program: str) -> bytes:
    """Bytes of operators and what goes with them; `InvalidOption` if a function cannot be sent."""
    sink = io.BytesIO()
    try:
        _ProgramPickler(sink, pickle.HIGHEST_PROTOCOL).dump(parts)
    except (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise InvalidOption(
            f"program {program!r}: its functions cannot be sent to workers: {error}; define them in a module, with "
            "what they use"
        ) from error
    data = sink.getvalue()
    if len(data) > PROGRAM_BYTES_MAX:
        raise InvalidOption(
            f"program {program!r}: its functions, with what they use, take {len(data):,} bytes; at most 32 MiB fit"
        )
    return data


def unpack_program(data: bytes) -> Any:
    """What `pack_program` was given; raises what importing the program's modules raises."""
    return pickle.loads(data)  # noqa: S301 - of the program that started this process


def fingerprint(operators: Operators) -> str:
    """A number that a program with the same operators and code has, too; 8 hex digits."""
    found = 0
    for operator in operators.all:
        facts = [operator.name, operator.partitions, str(operator.key_type), str(operator.schema)]
        for name, function in sorted(operator.functions.items()):
            facts += [name, function.is_batch, function.touches, *_code_facts(function.code.__code__)]
        found = zlib.crc32(repr(facts).encode(), found)
    return f"{found:08x}"


def code_number(operators: Operators) -> str:
    """The same; empty where a function has no code of Python, so that nothing is known of it."""
    try:
        return fingerprint(operators)
    except AttributeError:
        return ""


def _code_facts(code: types.CodeType) -> Iterator[Any]:
    yield code.co_code.hex()
    yield code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code_facts(constant)
        elif not isinstance(constant, frozenset):
            yield constant


class _ProgramPickler(pickle.Pickler):
    """By name where there is one, else by value."""

    def reducer_override(self, obj: Any) -> Any:
        """How functions, modules, and what the main script defines are rebuilt; the rest as always."""
        if isinstance(obj, types.FunctionType):
            return NotImplemented if _is_named(obj) else _function_parts(obj)
        if isinstance(obj, types.ModuleType):
            if obj.__name__ == "__main__":
                raise pickle.PicklingError("one of them uses the main script as a module")
            return importlib.import_module, (obj.__name__,)
        if isinstance(obj, type) and obj.__module__ == "__main__":
            return _class_parts(obj)
        if isinstance(obj, property):
            return property, (obj.fget, obj.fset, obj.fdel, obj.__doc__)
        if isinstance(obj, staticmethod | classmethod):
            return type(obj), (obj.__func__,)
        return NotImplemented


def _function_parts(function: types.FunctionType) -> Any:
    code = function.__code__
    module = "" if function.__module__ == "__main__" else function.__module__
    names, known = _names(code), {} if module else function.__globals__
    used = {name: known[name] for name in _global_names(code) if name in known}
    contents = [_content(cell) for cell in function.__closure__ or ()]
    state = (
        used,
        function.__defaults__,
        function.__kwdefaults__,
        contents,
        {} if module else {key: value for key, value in function.__dict__.items() if key != "__wrapped__"},
        _submodules([*used.values(), *contents], names),
    )
    made = (marshal.dumps(code), module, function.__name__, len(function.__closure__ or ()))
    return _make_function, made, state, None, None, _fill_function


def _class_parts(kind: type) -> Any:
    """Of a class of the main script; what its metaclass or a decorator has made of it could not be made anew."""
    if type(kind) is not type or not _PLAIN_CLASS.isdisjoint(kind.__dict__):
        raise pickle.PicklingError(
            f"class {kind.__name__!r} of the main script has slots or a metaclass, or is a dataclass or a named tuple"
        )
    state = {name: value for name, value in kind.__dict__.items() if name not in _MADE_BY_PYTHON}
    return type, (kind.__name__, kind.__bases__, {"__module__": "__main__"}), state, None, None, _fill_class


_PLAIN_CLASS = frozenset(("__slots__", "__dataclass_fields__", "_fields"))
"""None of these is in one."""
_MADE_BY_PYTHON = frozenset(("__dict__", "__weakref__", "__module__"))


def _fill_class(kind: type, state: dict[str, Any]) -> None:
    for name, value in state.items():
        setattr(kind, name, value)


def _submodules(used: Iterable[Any], names: set[str]) -> list[str]:
    """Modules within those that are used, which an import of these alone does not bring: `a.b` after `import a.b`."""
    found: list[str] = []
    at = [value.__name__ for value in used if isinstance(value, types.ModuleType)]
    while at:
        at = [inner for outer in at for name in names if (inner := f"{outer}.{name}") in sys.modules]
        found += at
    return found


def _is_named(function: types.FunctionType) -> bool:
    if function.__module__ == "__main__":
        return False
    found: Any = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is function


def _names(code: types.CodeType) -> set[str]:
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return found


def _global_names(code: types.CodeType) -> set[str]:
    """Without those of attributes: a function that calls `ctx.put` does not use what the script calls `put`."""
    found = {str(one.argval) for one in dis.get_instructions(code) if one.opname in _OF_GLOBALS}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _global_names(constant)
    return found


_OF_GLOBALS = frozenset(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"))
"""Reads of names that may be those of the script; the second and third are in the bodies of classes."""


class _Empty:
    """What a cell holds that holds nothing."""


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _Empty


def _make_function(code: bytes, module: str, name: str, cells: int) -> Callable[..., Any]:
    names = {"__builtins__": __builtins__, "__name__": "__main__"}
    if module:
        names = importlib.import_module(module).__dict__
    closure = tuple(types.CellType() for _ in range(cells))
    # Of the same program, as above.
    return types.FunctionType(marshal.loads(code), names, name, None, closure)  # noqa: S302


def _fill_function(function: Any, state: Any) -> None:
    used, defaults, keywords, contents, attributes, submodules = state
    for name in submodules:
        importlib.import_module(name)
    function.__globals__.update(used)
    function.__defaults__, function.__kwdefaults__ = defaults, keywords
    function.__dict__.update(attributes)
    for cell, content in zip(function.__closure__ or (), contents, strict=True):
        if content is not _Empty:
            cell.cell_contents = content
