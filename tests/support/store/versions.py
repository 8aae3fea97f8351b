"""A bucket in memory on a clock that the test moves, and short builders of the records in a version."""

from collections.abc import Iterable, Iterator, Sequence

from tussock.meta.version.version import Version
from tussock.statestore.base.system import RealSystem
from tussock.statestore.contract.backend import CommitRequest
from tussock.statestore.contract.object_store import ObjectInfo, check_size
from tussock.statestore.contract.records import Run, SstInfo, TableSpec, object_sizes
from tussock.statestore.errors import ObjectNotFound


class FakeSystem(RealSystem):
    """Clocks that stand still until a test moves them, and entropy that counts."""

    def __init__(self) -> None:
        self.wall_ms = 1_700_000_000_000
        self.ticks = 1000.0
        self.drawn = 0

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return self.ticks

    def sleep(self, seconds: float) -> None:
        self.forward(seconds)

    def random_bytes(self, count: int) -> bytes:
        self.drawn += 1
        return self.drawn.to_bytes(count, "big")

    def forward(self, seconds: float) -> None:
        self.wall_ms += int(seconds * 1000)
        self.ticks += seconds


class ModelBucket:
    """An `ObjectStore` in a dict whose clock is the test's."""

    def __init__(self, system: FakeSystem, url: str = "model://") -> None:
        self.system = system
        self.url = url
        self.objects: dict[str, tuple[bytes, int]] = {}

    def put(self, path: str, data: bytes | Iterable[bytes | memoryview]) -> None:
        whole = bytes(data) if isinstance(data, bytes | memoryview) else b"".join(data)
        self.objects[path] = (whole, self.system.now_ms())

    def create(self, path: str, data: bytes) -> bool:
        if path in self.objects:
            return False
        self.put(path, data)
        return True

    def get(self, path: str, bytes_max: int | None = None) -> bytes:
        if path not in self.objects:
            raise ObjectNotFound(f"{path} is not in {self.url}")
        check_size(path, len(self.objects[path][0]), bytes_max)
        return self.objects[path][0]

    def get_range(self, path: str, start: int, length: int) -> memoryview:
        return memoryview(self.get(path))[start : start + length]

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        found = sorted(path for path in self.objects if path.startswith(prefix) and path > after)
        return iter([ObjectInfo(path, len(self.objects[path][0]), self.objects[path][1]) for path in found])

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.objects.pop(path, None)

    def leftovers(self, before_ms: int) -> Sequence[ObjectInfo]:
        return ()

    def close(self) -> None:
        pass


def make_id(ms: int, tail: int = 0) -> str:
    return f"{ms:012x}{tail:020x}"


_SERIAL = iter(range(1, 10**9))


def sst(smallest: bytes = b"a", largest: bytes = b"z", **fields: object) -> SstInfo:
    values: dict[str, object] = {
        "id": make_id(1_700_000_000_000, next(_SERIAL)),
        "rows": 100,
        "deletes": 0,
        "data_bytes": 1000,
        "meta_bytes": 100,
        "epoch": 1,
    }
    values.update(fields)
    values.setdefault("min_epoch", values["epoch"])
    values.setdefault("max_epoch", values["epoch"])
    return SstInfo(smallest=smallest, largest=largest, **values)  # type: ignore[arg-type]


def live_objects(version: Version) -> set[str]:
    """Paths of all objects of the SSTs in the trees."""
    return {path for state in version.tables.values() for sst in state.levels.ssts() for path in object_sizes(sst)}


def run(*ssts: SstInfo) -> Run:
    return Run(ssts=ssts)


def request(epoch: int, table: int | None = 1, *ssts: SstInfo, **fields: object) -> CommitRequest:
    runs = {table: tuple(run(one) for one in ssts) or (run(sst()),)} if table is not None else {}
    return CommitRequest(epoch=epoch, tables=runs, **fields)  # type: ignore[arg-type]


def spec(name: str = "kv", table_id: int = 1) -> TableSpec:
    return TableSpec(id=table_id, name=name)
