"""Images hold what the project's lock file names, in the versions and with the hashes that it names."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = {"operator": ["operator"], "node": ["meta"], "spark": ["spark", "platform"]}
LEFT_OUT = {"operator": {"numpy", "polars", "pyarrow"}}  # `test_operator_is_light.py` says why that may be
LOCKS = [*(f"images/{part}/requirements.lock" for part in EXTRAS), "images/wheel.lock", "images/spark/flights.lock"]


def pinned_hashes(lock: str) -> dict[str, set[str]]:
    """`name==version` (with its marker, if any) -> the hashes that a download may have."""
    packages: dict[str, set[str]] = {}
    for line in (ROOT / lock).read_text(encoding="utf-8").splitlines():
        if found := re.match(r"(\S+==.+?) \\$", line):
            hashes = packages[found[1]] = set()
        elif found := re.match(r"\s+--hash=(\S+?)(?: \\)?$", line):
            hashes.add(found[1])
    return packages


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_of_an_image_is_part_of_the_projects(lock: str) -> None:
    """A version that was raised in one place only would be tested in one and shipped in the other."""
    whole, part = pinned_hashes("requirements.lock"), pinned_hashes(lock)
    assert part
    by_name = {name.split(" ")[0]: hashes for name, hashes in whole.items()}
    assert {name for name, hashes in part.items() if by_name.get(name.split(" ")[0]) != hashes} == set()


@pytest.mark.parametrize("part", EXTRAS)
def test_lock_of_an_image_has_what_its_extras_ask_for(part: str) -> None:
    """A dependency that was added to an extra is in the images of that extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    def names(requirements: list[str]) -> set[str]:
        found: set[str] = set()
        for requirement in requirements:
            name, extras = re.match(r"([\w.-]+)(?:\[(.*)\])?", requirement).groups()  # type: ignore[union-attr]
            if name == "tussock":
                for extra in extras.split(","):
                    found |= names(project["optional-dependencies"][extra])
            else:
                found.add(name.lower())
        return found

    wanted = names(project["dependencies"]) | names([f"tussock[{','.join(EXTRAS[part])}]"])
    there = {name.split("==")[0] for name in pinned_hashes(f"images/{part}/requirements.lock")}
    assert wanted - there == LEFT_OUT.get(part, set())
