"""A bit that flips between a bucket and who copies: each answer in turn. What is finished then can be restored."""

import pytest

from support.backups.backed_up import InlineSystem, fill_source
from support.backups.destinations import copy, no_other, verify_all
from support.store.versions import ModelBucket
from tussock.meta.retention.destination.records import catalogue_path, manifest_path
from tussock.meta.retention.restore import restore
from tussock.statestore.errors import TussockError

PLACES = {"first": 0.0, "middle": 0.5, "last": 1.0}


class Wire:
    """Counts the answers of the buckets on it, and spoils one of them."""

    def __init__(self, spoils: int = 0, place: float = 0.0) -> None:
        self.answers = 0
        self._spoils = spoils
        self._place = place

    def carry(self, data: bytes) -> bytes:
        self.answers += 1
        if self.answers != self._spoils or not data:
            return data
        at = round(self._place * (len(data) - 1))
        return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


class FarBucket(ModelBucket):
    """The same objects as another one, at the end of a wire."""

    def __init__(self, near: ModelBucket, wire: Wire) -> None:
        super().__init__(near.system, near.url)
        self.objects = near.objects
        self._wire = wire

    def get(self, path: str, bytes_max: int | None = None) -> bytes:
        return self._wire.carry(super().get(path, bytes_max))

    def get_range(self, path: str, start: int, length: int) -> memoryview:
        return memoryview(self._wire.carry(super().get(path)[start : start + length]))


def ssts_of(target: ModelBucket) -> dict[str, bytes]:
    return {path: data for path, (data, _) in target.objects.items() if "/sst/" in path}


@pytest.fixture
def system() -> InlineSystem:
    return InlineSystem()


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("has_begun", [False, True])
def test_no_flip_on_the_way_gets_into_a_copy(system: InlineSystem, place: float, has_begun: bool) -> None:
    """A call either fails, and the next one makes a copy, or has made one: it verifies, and can be restored.

    `has_begun`: an attempt before has put the SSTs, and died before its manifest.
    """
    source = fill_source(ModelBucket(system, "model://source"), system)
    target = ModelBucket(system, "model://target")
    if has_begun:
        copy(source, target, system)
        del target.objects[manifest_path(1)], target.objects[catalogue_path(2)]
    began = dict(target.objects)
    wire = Wire()
    copy(FarBucket(source, wire), FarBucket(target, wire), system)
    count = wire.answers
    whole = ssts_of(target)
    assert count > 5
    failed = 0
    for answer in range(1, count + 1):
        target.objects.clear()
        target.objects.update(began)
        wire = Wire(answer, place)
        try:
            copy(FarBucket(source, wire), FarBucket(target, wire), system)
        except TussockError:
            failed += 1
            copy(source, target, system)
        assert verify_all(target, system) == ["b"], f"answer {answer} of {count}"
        assert ssts_of(target) == whole, f"answer {answer} of {count}"
        made = ModelBucket(system, "model://made")
        restore(target, made, system, backup="b", owner="test", open_source=no_other)
    assert failed, "no flip was met"
