"""Print the rooms of the house: which room imports which, and the floors of the folders inside each.

A room is a folder of the repository that holds one part of the package `tussock`. A floor is what may import all that
stands below it and nothing above; a folder stands as low as its imports let it.

    python scripts/rooms.py
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ["ROOMS", "arrows", "floors", "picture"]

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("operator", "cli", "compactor", "compute", "meta", "statestore")


def arrows() -> dict[str, set[str]]:
    """For each room the rooms that its modules import; a backend that is loaded by name is not among them."""
    found = {room: {name.split(".")[1] for name in _imports(room)} - {room} for room in ROOMS}
    return {room: targets & set(ROOMS) for room, targets in found.items()}


def floors(room: str) -> list[list[str]]:
    """The folders of a room, and modules without one, from the lowest floor up.

    Folders that import each other stand on one floor, as what belongs together.
    """
    below: dict[str, set[str]] = {}
    for path in sorted((ROOT / room / "tussock" / room).rglob("*.py")):
        place = path.relative_to(ROOT / room / "tussock" / room)
        if place.name == "__init__.py" and len(place.parts) == 1:
            continue
        targets = {name.split(".")[2] for name in _imported(path) if name.startswith(f"tussock.{room}.")}
        below.setdefault(place.parts[0].removesuffix(".py"), set()).update(targets)
    below = {
        name: {target for target in targets if target in below and target != name} for name, targets in below.items()
    }
    result: list[list[str]] = []
    while below:
        free = sorted(name for name, targets in below.items() if not targets & below.keys())
        ring = free or sorted(_ring(below))
        result.append(ring)
        below = {name: targets for name, targets in below.items() if name not in ring}
    return result


def picture() -> str:
    """What `docs/architecture.md` shows: a line for each room, then the floors of each, the top one first."""
    width = max(map(len, ROOMS))
    lines = [f"{room:<{width}}  -> {', '.join(sorted(targets)) or 'no other'}" for room, targets in arrows().items()]
    for room in ROOMS:
        lines += ["", f"{room}:"]
        lines += [f"  {' | '.join(floor)}" for floor in reversed(floors(room))]
    return "\n".join(lines)


def _ring(below: Mapping[str, set[str]]) -> set[str]:
    """The smallest set of folders that import each other and nothing else that is left."""
    reach = {name: _reached(name, below) for name in below}
    return min((reach[name] | {name} for name in below), key=lambda ring: (len(ring), sorted(ring)))


def _reached(name: str, below: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        for target in below.get(waiting.pop(), set()) - seen:
            seen.add(target)
            waiting.append(target)
    return seen & below.keys()


def _imports(room: str) -> Iterator[str]:
    for path in (ROOT / room / "tussock").rglob("*.py"):
        yield from _imported(path)


def _imported(path: Path) -> Iterator[str]:
    """The modules of `tussock` that a file imports, with the names that it takes from them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tussock"):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("tussock."))


if __name__ == "__main__":
    sys.stdout.write(f"{picture()}\n")
