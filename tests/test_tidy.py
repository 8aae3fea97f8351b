"""The rules of the house that no linter checks: sizes, docstrings, banned calls, dead modules, words, errors.

Each exemption stands in `EXEMPT` with its reason, and one that is no longer needed fails, so the list can only
shrink.
Sorted `__all__` lists are held by ruff (RUF022), the one-way imports by import-linter.
"""

import ast
import importlib
import importlib.util
import inspect
import pickle
import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tussock.statestore import errors

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("statestore", "meta", "compactor", "compute", "cli", "operator")
MODULE_LINES_MAX = 400
SCRIPT_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
FOLDER_MODULES_MAX = 12

BANNED_CALLS = {
    "time.time": "System.now_ms",
    "time.time_ns": "System.now_ms",
    "time.monotonic": "System.monotonic",
    "time.monotonic_ns": "System.monotonic",
    "time.perf_counter": "System.monotonic",
    "time.perf_counter_ns": "System.monotonic",
    "time.sleep": "System.sleep",
    "datetime.datetime.now": "System.now_ms",
    "datetime.datetime.utcnow": "System.now_ms",
    "datetime.datetime.today": "System.now_ms",
    "datetime.date.today": "System.now_ms",
    "os.urandom": "System.random_bytes",
}
BANNED_MODULES = {
    "random": "System.random_bytes",
    "secrets": "System.random_bytes",
    "uuid": "System.random_bytes",
    "numpy.random": "System.random_bytes",
}
# Put together from pieces, so that this file does not find itself.
BANNED_TEXT = {
    "an absolute path of a developer's machine": re.compile(r"(?<![\w.$}])/" + r"(work|root|Users|home)/"),
    "unfinished work": re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b"),
    "an index of packages": re.compile(r"--(extra-)?index" + r"-url[ =]|--find" + r"-links[ =]"),
}

# (rule, what it is about) -> why it may stand.
EXEMPT: dict[tuple[str, str], str] = {
    ("time", "statestore/tussock/statestore/base/system.py"): "the one module that may ask the machine",
    ("time", "compute/tussock/compute/applications/draws.py"): "a class only; its bits are the system's",
    ("time", "compute/tussock/compute/functions/program/context.py"): "a class only, for a type",
    ("time", "compute/tussock/compute/procedures/partitions/group_draws.py"): "a class only; its bits are a hash",
    ("time", "compute/tussock/compute/procedures/context.py"): "the same class, as a type",
    ("constant", "tests/support/inside.py"): "sizes that no parameter can be for, each with its reason",
    ("reach", "tests/support/inside.py"): "the one place where tests reach inside: each reach has a name and a reason",
    ("reach", "tests/simulation/planted.py"): "it plants bugs in single functions, and most of these are private",
    ("reach", "tests/support/changelog/planted_flow_bugs.py"): "the same, in the loop of streams",
}


def assert_only_exempt(rule: str, violations: dict[str, str]) -> None:
    """Fail on violations that no exemption covers, and on exemptions of that rule that cover nothing."""
    exempt = {subject for kind, subject in EXEMPT if kind == rule}
    problems = [f"{subject}: {found}" for subject, found in violations.items() if subject not in exempt]
    problems += [f"{subject}: its exemption from {rule!r} is stale" for subject in sorted(exempt - violations.keys())]
    assert not problems, "\n".join(["", *problems])


def python_files(*folders: str) -> list[Path]:
    """The Python files of some folders of the project, caches aside."""
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in found if "__pycache__" not in path.parts]


def parse(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def relative(path: Path) -> str:
    """A path as the exemptions and the messages name it."""
    return path.relative_to(ROOT).as_posix()


def module_name(path: Path) -> str:
    """`statestore/tussock/statestore/client.py` is `tussock.statestore.client`; a package is its folder."""
    parts = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Pairs (name in the file, dotted origin) of every import in a file, also those inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.split(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (first, first)
                yield "", alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield "", node.module
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def dotted_name(node: ast.expr, origins: dict[str, str]) -> str | None:
    """`np.random.default_rng` as `numpy.random.default_rng`, if `np` was imported in that file."""
    if isinstance(node, ast.Attribute):
        value = dotted_name(node.value, origins)
        return f"{value}.{node.attr}" if value else None
    return origins.get(node.id) if isinstance(node, ast.Name) else None


def banned_uses(tree: ast.Module) -> list[str]:
    """Uses of the machine's time and randomness in a file, each with its replacement."""
    origins = {name: origin for name, origin in imported_names(tree) if name}
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute | ast.Name):
            continue
        name = dotted_name(node, origins) or ""
        module = next((banned for banned in BANNED_MODULES if name.startswith(banned + ".")), "")
        instead = BANNED_CALLS.get(name) or BANNED_MODULES.get(module)
        if instead and name not in found:
            found[name] = f"line {node.lineno}: {name}, use {instead}"
    return list(found.values())


_TUPLE_METHODS = {"_asdict", "_fields", "_make", "_replace"}
"""The public methods of a `NamedTuple`, whose names begin so to leave all others to its fields."""


def is_private(name: str) -> bool:
    """Whether a name is meant for its own module or class."""
    return name.startswith("_") and not name.startswith("__") and name not in _TUPLE_METHODS


def private_names(trees: list[ast.Module]) -> set[str]:
    """The private names that these files give to functions, classes, attributes and constants."""
    names: set[str] = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return {name for name in names if is_private(name)}


def reaches(tree: ast.Module, private: set[str]) -> list[str]:
    """Where a test's file names what is private to the product: attributes, imports, and names given to be replaced.

    Spared are `self._x`, `cls._x`, and `Name._x` where the file defines the class or has the name from elsewhere.
    """
    own = {"self", "cls", *(node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))}
    own |= {name for name, origin in imported_names(tree) if not origin.startswith("tussock")}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in private:
            if not (isinstance(node.value, ast.Name) and node.value.id in own):
                found.append(f"line {node.lineno}: .{node.attr}")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tussock"):
            found += [f"line {node.lineno}: {alias.name}" for alias in node.names if is_private(alias.name)]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "setattr":
            ends = [
                one.value.split(".")[-1]
                for one in node.args
                if isinstance(one, ast.Constant) and isinstance(one.value, str)
            ]
            found += [f"line {node.lineno}: {end}" for end in ends if end in private]
    return found


def patched_constants(tree: ast.Module) -> list[str]:
    """Where a test's file replaces a constant of the product, by `setattr` or by an assignment.

    The name of a constant is in capitals; one that is computed may be any.
    """
    product = {name for name, origin in imported_names(tree) if origin.startswith("tussock.")}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found += [
                f"line {node.lineno}: {one.attr}"
                for one in targets
                if isinstance(one, ast.Attribute)
                and isinstance(one.value, ast.Name)
                and one.value.id in product
                and _is_constant(one.attr)
            ]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "setattr":
            first, second = [*node.args, None, None][:2]
            if isinstance(first, ast.Constant) and str(first.value).startswith("tussock."):
                name: str | None = str(first.value).rpartition(".")[2]
            elif isinstance(first, ast.Name) and first.id in product:
                name = str(second.value) if isinstance(second, ast.Constant) else None
            else:
                continue
            if name is None or _is_constant(name):
                found.append(f"line {node.lineno}: {name or 'a computed name'}")
    return found


def _is_constant(name: str) -> bool:
    return name.isupper()


def tracked_files() -> list[Path]:
    """The files that git tracks and that are still there."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False, text=True)
    if listed.returncode:
        pytest.skip("not a git work tree, so nobody knows which files belong to the project")
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_files_stay_short() -> None:
    """A module has at most 400 lines; a file of tests, benchmarks or examples at most 600."""
    long = {}
    for limit, folders in ((MODULE_LINES_MAX, ROOMS), (SCRIPT_LINES_MAX, ("tests", "benchmarks", "examples"))):
        for path in python_files(*folders):
            lines = len(path.read_text(encoding="utf-8").splitlines())
            if lines > limit:
                long[relative(path)] = f"{lines} lines, {limit} at most: split it by idea"
    assert_only_exempt("length", long)


def test_folders_stay_small() -> None:
    """A folder of a room, or of tests, has at most twelve modules beside its `__init__.py`."""
    modules = Counter(relative(path.parent) for path in python_files(*ROOMS, "tests") if path.name != "__init__.py")
    large = {
        folder: f"{count} modules, {FOLDER_MODULES_MAX} at most: give those that belong together a folder"
        for folder, count in modules.items()
        if count > FOLDER_MODULES_MAX
    }
    assert_only_exempt("modules", large)


def test_modules_are_named_by_nouns() -> None:
    """No module is named by what it does or by what was done to it: it is `restore`, and not a participle."""
    nouns = {"encoding", "hashing", "opening", "recurring"}
    nouns |= {"chunked", "embedded", "renumbered"}  # as the class in it
    stems = [(path.stem, relative(path)) for path in python_files(*ROOMS)]
    assert [path for stem, path in stems if re.search("(ing|[^e]ed)$", stem) and stem not in nouns] == []


def test_class_names_are_unique() -> None:
    """One name is one class, private ones too: a reader of the name knows which one."""
    homes: dict[str, list[str]] = {}
    for path in python_files(*ROOMS):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(f"{relative(path)}:{node.lineno}")
    shared = {name: places for name, places in homes.items() if len(places) > 1}
    found = [f"{name}: {', '.join(places)}" for name, places in shared.items()]
    assert not found, "\n".join(["find another noun for the less public one:", *found])


def rooms_script() -> Any:
    """The module of `scripts/rooms.py`."""
    spec = importlib.util.spec_from_file_location("rooms", ROOT / "scripts/rooms.py")
    assert spec is not None
    assert spec.loader is not None
    rooms = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rooms)
    return rooms


def rooms_below(drawing: list[str]) -> dict[str, set[str]]:
    """Of boxes drawn with `+`, `-` and `|`, each with a room's name in its corner: the rooms that each stands on.

    Also those below these, down to the ground.
    """
    width = max(map(len, drawing))
    grid = [line.ljust(width, "|") for line in drawing]
    owners: dict[tuple[int, int], str] = {}
    for row, line in enumerate(grid):
        for found in re.finditer(rf"\| ({'|'.join(ROOMS)}) ", line):
            corners = [(row, found.start(1))]
            while corners:
                at = corners.pop()
                if at in owners or not 0 <= at[0] < len(grid) or grid[at[0]][at[1]] in "+-|":
                    continue
                owners[at] = found[1]
                corners += [(at[0] + down, at[1] + right) for down, right in ((0, 1), (0, -1), (1, 0), (-1, 0))]
    below: dict[str, set[str]] = {name: set() for name in owners.values()}
    for (row, column), name in owners.items():
        below[name] |= {owners[at, column] for at in range(row, len(grid)) if (at, column) in owners} - {name}
    for _ in below:
        below = {name: those.union(*(below[one] for one in those)) for name, those in below.items()}
    return below


def test_the_pictures_of_the_rooms_match_the_imports() -> None:
    """`docs/architecture.md` and `README.md` show the imports that `scripts/rooms.py` finds."""
    rooms = rooms_script()
    assert rooms.picture() in (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    borders = [number for number, line in enumerate(lines) if line.startswith("  +-")]
    assert rooms_below(lines[borders[0] : borders[-1] + 1]) == rooms.arrows()


def test_a_box_stands_on_all_that_is_below_it() -> None:
    """Directly or not, and on as many boxes as it is wide."""
    drawing = [
        "+-----------------+",
        "| cli             |",
        "+---------+-------+",
        "| compute | meta  |",
        "+---------+-------+",
    ]
    assert rooms_below(drawing) == {"cli": {"compute", "meta"}, "compute": set(), "meta": set()}


def test_named_files_exist() -> None:
    """A file of Python that a page, a docstring or a comment names exists, by the end of its path at least."""
    ends = {"/".join(path.parts[start:]) for path in tracked_files() for start in range(len(path.parts))}
    gone = {}
    for path in tracked_files():
        if path.suffix not in {".py", ".md"} or path.name == "CHANGELOG.md":
            continue
        named = re.findall(r"`((?:[\w.-]+/)*[\w-]+\.py)`", path.read_text(encoding="utf-8"))
        if missing := sorted({name for name in named if name not in ends}):
            gone[relative(path)] = f"names {', '.join(missing)}"
    assert_only_exempt("named", gone)


def test_rooms_of_tests_are_in_their_table() -> None:
    """`docs/testing.md` names each folder of tests, and no other."""
    text = (ROOT / "docs/testing.md").read_text(encoding="utf-8")
    rooms = re.findall(r"^\| `tests/(\w+)`[^|]*\| [^|]* \|([^|]*)\|$", text, re.MULTILINE)
    named = {f"tests/{folder}/{room}" for folder, names in rooms for room in re.findall(r"`(\w+)`", names)}
    named |= set(re.findall(r"`(tests/\w+(?:/\w+)?)`", text))
    folders = {relative(path.parent) for path in python_files("tests")}
    folders = {folder for folder in folders if len(Path(folder).parts) in (2, 3)}
    harnesses = ("tests/cluster/", "tests/simulation/")  # each has a page, which says what is in them
    assert sorted(folder for folder in folders - named if not folder.startswith(harnesses)) == []
    assert sorted(folder for folder in named if not (ROOT / folder).is_dir()) == []


def test_loggers_are_in_their_table() -> None:
    """`docs/operations.md` names each logger; `NAME.*` stands for those below NAME."""
    named = re.findall(r"`(tussock\.[\w.]+\*?)`", (ROOT / "docs/operations.md").read_text(encoding="utf-8"))
    wide = tuple(name.removesuffix("*") for name in named if name.endswith("*"))
    code = "\n".join(path.read_text(encoding="utf-8") for path in python_files(*ROOMS))
    loggers = set(re.findall(r"get_logger\(\"([\w.]+)\"\)", code))
    assert sorted(name for name in loggers - set(named) if not name.startswith(wide)) == []


def test_recipes_name_existing_files() -> None:
    """Each file and folder of `docs/recipes.md` exists."""
    named = re.findall(r"`([\w.-]+/[\w./-]*)`", (ROOT / "docs/recipes.md").read_text(encoding="utf-8"))
    assert len(named) > 40
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_functions_stay_short() -> None:
    """A function of a room has at most 70 lines, its decorators and docstring counted."""
    long = {}
    for path in python_files(*ROOMS):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                lines = node.end_lineno - first + 1
                if lines > FUNCTION_LINES_MAX:
                    long[f"{relative(path)}:{node.name}"] = f"{lines} lines, {FUNCTION_LINES_MAX} at most"
    assert_only_exempt("function", long)


def test_public_names_are_documented() -> None:
    """Every name of an `__all__` exists, and a class has a docstring beside its base's."""
    bare = {}
    for path in python_files(*ROOMS):
        module = importlib.import_module(module_name(path))
        for name in getattr(module, "__all__", ()):
            public = getattr(module, name)
            # A class is asked for its own docstring, because `__doc__` would answer with that of its base.
            own = vars(public).get("__doc__") if isinstance(public, type) else public.__doc__
            if (isinstance(public, type) or inspect.isroutine(public)) and not own:
                bare[f"{relative(path)}:{name}"] = "has no docstring"
    assert_only_exempt("docstring", bare)


def test_time_and_randomness_come_from_system() -> None:
    """Only `System` asks the machine for time and randomness, so that a test can decide both."""
    banned = {relative(path): "; ".join(uses) for path in python_files(*ROOMS) if (uses := banned_uses(parse(path)))}
    assert_only_exempt("time", banned)


@pytest.mark.parametrize(
    "code",
    [
        "import time\ntime.sleep(1)",
        "import time as t\nt.monotonic()",
        "from time import time\ntime()",
        "import datetime\ndatetime.datetime.now()",
        "from datetime import datetime, UTC\ndatetime.now(UTC)",
        "import numpy as np\nnp.random.default_rng(1)",
        "import uuid\nuuid.uuid4()",
        "from random import shuffle\nshuffle([])",
        "def later():\n    import secrets\n    return secrets.token_hex()",
        "import time\nclock = time.monotonic",
    ],
)
def test_ban_is_found_under_any_name(code: str) -> None:
    """An alias, an import inside a function or a call through a variable does not hide a banned function."""
    assert banned_uses(ast.parse(code))


def test_ban_spares_namesakes() -> None:
    """A method or parameter with the name of a banned function is allowed."""
    assert not banned_uses(ast.parse("import datetime\nsystem.sleep(1)\ntime = 3\ndatetime.datetime(2013, 1, 1)"))


def test_tests_use_the_public_face() -> None:
    """Only `tests/support/inside.py` reaches into the product, so that a change there is followed in one place."""
    private = private_names([parse(path) for path in python_files(*ROOMS)])
    found = {relative(path): reaches(parse(path), private) for path in python_files("tests")}
    instead = "use the public face, or give the reach a name and a reason in tests/support/inside.py"
    assert_only_exempt("reach", {path: f"{', '.join(lines)}: {instead}" for path, lines in found.items() if lines})


@pytest.mark.parametrize(
    "code",
    [
        "store._core",
        "store.parts[0]._core.backend",
        "from tussock.statestore.parts import _core",
        "monkeypatch.setattr(core, '_core', 3)",
        "monkeypatch.setattr('tussock.statestore.parts._core', 3)",
        "class Fake:\n    def look(self, store):\n        return store._core",
    ],
)
def test_reach_is_found_in_any_form(code: str) -> None:
    """Read, imported or replaced by its name."""
    assert len(reaches(ast.parse(code), {"_core"})) == 1


def test_reach_spares_names_of_the_tests() -> None:
    """Private names of a test's own classes, of other packages, and the methods of named tuples are allowed."""
    code = "class Fake:\n    def look(self):\n        return self._core, Fake._core, os._exit(0), row._replace(a=1)"
    assert reaches(ast.parse(code), {"_core"}) == []


def test_tests_patch_no_constants() -> None:
    """What a test shrinks is a field of a record of limits, or a parameter: then any room of the house can set it."""
    found = {relative(path): patched_constants(parse(path)) for path in python_files("tests", "benchmarks", "examples")}
    instead = "make it a field of `Limits`, `LogLimits` or `ApplicationLimits`, or a parameter"
    assert_only_exempt("constant", {path: f"{', '.join(lines)}: {instead}" for path, lines in found.items() if lines})


@pytest.mark.parametrize(
    "code",
    [
        "from tussock.meta import log\nmonkeypatch.setattr(log, 'ATTEMPTS_MAX', 3)",
        "from tussock.meta import log\nmonkeypatch.setattr(log, '_ATTEMPTS_MAX', 3)",
        "from tussock.meta import log\nmonkeypatch.setattr(log, name, 3)",
        "import tussock.meta as meta\nsetattr(meta, 'ATTEMPTS_MAX', 3)",
        "monkeypatch.setattr('tussock.meta.log.ATTEMPTS_MAX', 3)",
        "from tussock.meta import log\nlog.ATTEMPTS_MAX = 3",
    ],
)
def test_patched_constant_is_found_in_any_form(code: str) -> None:
    """By name, by path, computed, or by an assignment."""
    assert len(patched_constants(ast.parse(code))) == 1


def test_patched_constant_spares_others() -> None:
    """Functions of the product, constants of the tests and of other packages, and fields of what a test has made."""
    code = (
        "from tussock.meta import log\nmonkeypatch.setattr(log, 'replay', 3)\nown.ATTEMPTS_MAX = 3\nsetattr(os, 'X', 1)"
    )
    assert patched_constants(ast.parse(code)) == []


_ENTRANCES = ("__init__.py", "__main__.py")
"""Python itself runs these: `python -m PACKAGE`."""


def test_no_module_is_dead() -> None:
    """Every module is imported by another one, named by one (`connect` loads backends so), or an entry point."""
    modules = {module_name(path): path for path in python_files(*ROOMS) if path.name not in _ENTRANCES}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    used = {target.split(":")[0] for target in project["scripts"].values()}
    for path in python_files(*ROOMS):
        tree = parse(path)
        here = module_name(path)
        named = {
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        used |= ({origin for _, origin in imported_names(tree)} | named) - {here}
    dead = {relative(path): "nobody imports it" for name, path in modules.items() if name not in used}
    assert_only_exempt("dead", dead)


def test_test_files_have_unique_names() -> None:
    """Tests are collected without packages, so two files of one name would hide each other."""
    names = Counter(path.name for path in python_files("tests") if path.name.startswith("test_"))
    assert [name for name, count in names.items() if count > 1] == []


def test_tracked_text_is_clean() -> None:
    """No tracked text names a developer's folders, unfinished work or an index of packages."""
    dirty = {}
    for path in tracked_files():
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(lines, 1):
            for what, pattern in BANNED_TEXT.items():
                if pattern.search(line):
                    dirty[relative(path)] = f"line {number} holds {what}"
    assert_only_exempt("text", dirty)


PUBLIC_ERRORS = [getattr(errors, name) for name in errors.__all__]


@pytest.mark.parametrize("error", PUBLIC_ERRORS, ids=lambda error: error.__name__)
def test_error_survives_pickling(error: type[errors.TussockError]) -> None:
    """An error keeps type, message and facts between processes, and derives from the one root."""
    raised = error("table 'kv' at epoch 7", "kv", 7)
    again = pickle.loads(pickle.dumps(raised))
    assert issubclass(error, errors.TussockError)
    assert (type(again), again.args, str(again)) == (error, raised.args, str(raised))


def test_every_error_is_in_the_table() -> None:
    """`docs/errors.md` has one row for each public error, and no row for an error that is gone."""
    text = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert sorted(rows) == sorted(errors.__all__)


def test_all_errors_are_public() -> None:
    """An error class that is missing from `__all__` would be missing from the table too."""
    defined = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert defined == set(errors.__all__)
