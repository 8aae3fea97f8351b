"""The input log: what an application was asked, durable before a reply leaves.

Objects `applications/NAME/input/<20 digits>` of a bucket, one for a group of records, numbered without gaps. Each is
created and never replaced, which is all that keeps two runners apart: one that takes over reads to the end and creates
the next number, without records; an older runner finds that number taken and is fenced. So such objects stay when
the others go: were their numbers free again, a runner that has slept for long could take one.
"""

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice

from tussock.compute.applications.errors import ApplicationFenced
from tussock.compute.applications.records import Group, Record, decode_group, encode_group
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.errors import CorruptLog, CorruptObject, ObjectNotFound

__all__ = ["InputLog"]

TAKEOVERS_MAX = 1000
"""The first objects of that many runners are kept."""
_AT_ONCE = 16
"""Objects that are read ahead."""


class InputLog:
    """The log of one application, for one runner."""

    def __init__(
        self, bucket: ObjectStore, application: str, uid: str, generation: int, takeovers: Sequence[int] = ()
    ) -> None:
        """`takeovers` are the numbers by which earlier runners took the log over, as far as they are known."""
        self._bucket = bucket
        self._folder = f"applications/{application}/input/"
        self._application = application
        self._uid = uid
        self._generation = generation
        self._lock = threading.Lock()
        """One thread appends, another one truncates."""
        self._written: list[int] = []
        """Numbers of objects with records that are there, ascending."""
        self.takeovers = list(takeovers)
        """Numbers of the objects without records, ascending; the newest thousand."""
        self.next = 1
        """The number of the next object."""

    def take_over(self, first: int) -> Iterator[Group]:
        """All groups from object number `first` on, in order; at the end of the iteration the log is this runner's.

        Raises `CorruptLog` for an object that is damaged, missing, in another's place, or another application's, and
        `ApplicationFenced` where another runner takes it over meanwhile.
        """
        self.next = first
        tried = 0
        while True:
            for number, data in self._still_there(self.next):
                if number != self.next:
                    raise CorruptLog(
                        f"{self._path(self.next)} is missing, and {self._path(number)} is there: records of the input "
                        f"log of application {self._application!r} were lost; put the object back from a copy"
                    )
                group = decode_group(data, self._path(number), number)
                if group.uid != self._uid:
                    raise CorruptLog(
                        f"{self._path(number)} is of another application named {self._application!r}: give this one "
                        "another name, or another place for its input"
                    )
                (self._written if group.records else self.takeovers).append(number)
                self.next += 1
                yield group
            if self._create([]):
                self.takeovers.append(self.next)
                self.next += 1
                return
            # Another runner's object is listed now, unless it was committed and deleted already; then it is not made
            # again.
            if tried == self.next and not self._is_there(tried):
                raise CorruptLog(
                    f"{self._path(tried)} in {self._bucket.url} can neither be read nor created: what is there is no "
                    "object; move it elsewhere"
                )
            tried = self.next

    def read(self, first: int) -> Iterator[Group]:
        """Groups from object number `first` on, as far as they follow each other; whose log it is stays as it is.

        Raises `CorruptLog` as `take_over`, and `ObjectNotFound` for what its runner deletes meanwhile.
        """
        for number, data in self._objects(first):
            group = decode_group(data, self._path(number), number)
            if number != first or group.uid != self._uid:
                return
            first += 1
            yield group

    def append(self, number: int, records: list[Record]) -> None:
        """Make a group durable under the number that follows; `ApplicationFenced` if another runner has it.

        May be repeated after `ObjectStoreUnavailable`.
        """
        assert number == self.next, "groups are written in order"
        if not self._create(records):
            raise ApplicationFenced(
                f"application {self._application!r}: another runner has taken over its input log at "
                f"{self._path(number)}; this one ends, and what it had not replied is not done"
            )
        with self._lock:
            self._written.append(number)
        self.next += 1

    def truncate(self, first: int) -> None:
        """Delete what a committed epoch holds: the objects before number `first`."""
        with self._lock:
            gone = [number for number in self._written if number < first]
            gone += self.takeovers[:-TAKEOVERS_MAX]
        self._bucket.delete([self._path(number) for number in gone])
        with self._lock:
            self._written = [number for number in self._written if number >= first]
            self.takeovers = self.takeovers[-TAKEOVERS_MAX:]

    def _create(self, records: list[Record]) -> bool:
        data = encode_group(Group(self._uid, self._generation, records, self.next))
        path = self._path(self.next)
        try:
            if self._bucket.create(path, data):
                return True
        except CorruptObject as error:
            # A folder, or a link to nothing, takes the number and is no object.
            raise CorruptLog(f"the input log of application {self._application!r} cannot go on: {error}") from error
        # An earlier attempt whose answer was lost may have created it.
        return bool(records) and self._bucket.get(path) == data

    def _is_there(self, number: int) -> bool:
        path = self._path(number)
        return any(info.path == path for info in self._bucket.list(path))

    def _objects(self, first: int) -> Iterator[tuple[int, bytes]]:
        """Numbers and bytes of the objects from `first` on, ascending; those before are noted as they are."""
        numbers = []
        for info in self._bucket.list(self._folder):
            name = info.path.removeprefix(self._folder)
            if len(name) != 20 or not (name.isascii() and name.isdigit()):
                raise CorruptLog(f"{info.path} is no object of an input log; move it elsewhere")
            numbers.append(int(name))
        known = {*self.takeovers, *self._written}
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for number, data in self._ahead(
                pool, [number for number in numbers if number < first and number not in known]
            ):
                # The runner before this one may delete them still.
                with suppress(ObjectNotFound):
                    self._note_older(number, data.result())
            for number, data in self._ahead(pool, [number for number in numbers if number >= first]):
                yield number, data.result()

    def _still_there(self, first: int) -> Iterator[tuple[int, bytes]]:
        """The same; `ApplicationFenced` where another runner has committed and deleted one."""
        try:
            yield from self._objects(first)
        except ObjectNotFound as error:
            raise ApplicationFenced(
                f"application {self._application!r}: another runner takes over its input log, and has deleted what it "
                f"has committed, while this one reads it ({error}); this one does not start"
            ) from error

    def _ahead(self, pool: ThreadPoolExecutor, numbers: list[int]) -> "Iterator[tuple[int, Future[bytes]]]":
        rest = iter(numbers)
        ahead = deque((number, pool.submit(self._bucket.get, self._path(number))) for number in islice(rest, _AT_ONCE))
        while ahead:
            number, data = ahead.popleft()
            following = next(rest, None)
            if following is not None:
                ahead.append((following, pool.submit(self._bucket.get, self._path(following))))
            yield number, data

    def _note_older(self, number: int, data: bytes) -> None:
        """An object that a committed epoch holds: a runner died before it deleted it. Damaged ones are left alone."""
        with suppress(CorruptLog):
            group = decode_group(data, self._path(number), number)
            if group.uid == self._uid:
                (self._written if group.records else self.takeovers).append(number)

    def _path(self, number: int) -> str:
        return f"{self._folder}{number:020d}"
