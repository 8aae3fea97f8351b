"""What a program is given before it starts: entities, and feeds of requests."""

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tussock.compute.applications.arguments import check_seconds
from tussock.compute.applications.borders.output import Output
from tussock.compute.applications.borders.pumps import Pumps
from tussock.compute.applications.durability.progress import is_own_table
from tussock.compute.applications.feeds.feed import InputFeed
from tussock.compute.applications.kafka.kafka_topic import KafkaTopic
from tussock.compute.functions.entities.bulk_load import load_entities
from tussock.compute.functions.feeds.fed_epochs import REPLY_SCHEMA
from tussock.compute.functions.feeds.request_feed import RequestFeed
from tussock.compute.functions.program.directory import Operators
from tussock.statestore import InvalidOption, StateStore

__all__ = ["ProgramDeclarations"]

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,200}")
FEEDS_MAX = 100


class ProgramDeclarations:
    """The declaring half of `Runtime`."""

    def __init__(self, store: StateStore, name: str, operators: Operators, place: str | None) -> None:
        """`place`: of the input log, if not in the store's bucket."""
        self.name = str.__str__(name)
        self._store = store
        self._input = place
        self._operators = operators
        self._feeds: dict[str, RequestFeed] = {}
        self._outputs: dict[str, Output] = {}
        """By the feed that has named it first."""
        self._pumps: Pumps | None = None
        """While the program runs."""

    def load(self, operator: str, rows: Any) -> int:
        """Store many entities before the start; returns the epoch that holds them.

        `rows`: Arrow data, a frame or a list of dicts with the column `key` and those of the state; each row replaces
        its entity. The operator's table is the program's from then on, also with rows that somebody else has stored in
        it. A table that lacks columns of the operator gets them, as at a start. Raises `InvalidOption` while the
        program runs, or for a table of another application, `SchemaMismatch` for columns that it cannot have.
        """
        self._check_declaring()
        number = self._operators.number(operator)
        return load_entities(self._store, self.name, self._operators.all[number], rows, self._input)

    def feed(
        self,
        operator: str,
        function: str,
        feed: InputFeed,
        *,
        key: str = "key",
        arguments: Sequence[str] | None = None,
        request_id: str | None = None,
        replies: str | KafkaTopic | None = None,
        keep_rows: int | None = None,
        name: str | None = None,
    ) -> None:
        """Let each row of a `TableFeed` or a `KafkaFeed` be a request for a function, once; callers may send others.

        Columns of the row: `key` names the entity, `arguments` are those of the function (all others by default), and
        `request_id` the id; a row with an id that came before does not run. With ids, `replies` go to a table, of whose
        newest rows at least `keep_rows` stay, or to a topic of Kafka, each once: `request_id`, `reply` as JSON, `error`
        of one that was aborted. A batch function gets up to `epoch_max` rows at a time, alone in their epoch; what it
        raises is the error of each of them. The position is kept under `name`, `OPERATOR.FUNCTION` by default: under
        another name the feed begins anew. Raises `InvalidOption`, and `FunctionFault` if there is no such function.
        """
        self._check_declaring()
        name = f"{operator}.{function}" if name is None else name
        what = f"program {self.name!r}: the feed of {operator!r:.100}.{function!r:.100}"
        if not hasattr(feed, "open") or not hasattr(feed, "on_bad"):
            raise InvalidOption(f"{what} is {feed!r:.100}; expected a TableFeed or a KafkaFeed")
        is_batch = self._operators.function(operator, function)[1].is_batch
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidOption(f"{what}: name={name!r:.100}; expected letters, digits, '_', '.' and '-'")
        name = str.__str__(name)
        if name in self._feeds:
            raise InvalidOption(f"{what}: there is a feed {name!r} already; give this one another name=")
        if len(self._feeds) >= FEEDS_MAX:
            raise InvalidOption(f"{what}: the program has {FEEDS_MAX} feeds already, which are as many as it may have")
        columns = [("key", key), *([] if request_id is None else [("request_id", request_id)])]
        if arguments is not None:
            if isinstance(arguments, str) or not isinstance(arguments, Sequence):
                raise InvalidOption(f"{what}: arguments={arguments!r:.100}; expected a list of columns")
            columns += [("arguments", one) for one in arguments]
            if is_batch and len(set(arguments)) < len(arguments):
                raise InvalidOption(f"{what}: arguments={arguments!r:.100}; a batch has each column once")
        for option, column in columns:
            if not isinstance(column, str) or not column:
                raise InvalidOption(f"{what}: {option}={column!r:.100}; expected the name of a column")
        output = None if replies is None else self._output(replies, keep_rows, request_id, what)
        taken = None if arguments is None else tuple(arguments)
        self._feeds[name] = RequestFeed(name, feed, operator, function, key, taken, request_id, output)

    def drain(self, timeout: float | None = None) -> None:
        """Wait until all that the feeds' sources have now has run and is durable, and Kafka has the replies.

        The program runs on; it is `Client.drain` that ends a node. Raises `WaitTimeout` after `timeout` seconds,
        `ApplicationStopped`, and what the program has failed with.
        """
        self._check_asking()
        check_seconds(timeout, f"program {self.name!r}: timeout of drain()", none=True)
        assert self._pumps is not None
        self._pumps.drain(timeout)

    def _pump_stats(self) -> dict[str, Any]:
        """`feeds` by name, and `outputs` by table."""
        return {"feeds": {}, "outputs": {}} if self._pumps is None else self._pumps.stats()

    def _output(self, to: Any, keep_rows: int | None, request_id: str | None, what: str) -> str:
        """The table of the output, which is its name."""
        if request_id is None:
            raise InvalidOption(f"{what}: replies= says whom they are for by their id: name its column, request_id=")
        topic = to if isinstance(to, KafkaTopic) else None
        if topic is not None and keep_rows is not None:
            raise InvalidOption(f"{what}: keep_rows= is for tables; the topic has its own")
        if topic is None and (not isinstance(to, str) or not to):
            raise InvalidOption(f"{what}: replies={to!r:.100}; expected a table or a KafkaTopic")
        # A topic is told by its name, as a table is, so that it does not matter which of the feeds that share it are
        # declared, and in which order.
        output = Output(f"{self.name}.{topic.topic}.outbox" if topic is not None else to, keep_rows, topic)
        known = self._outputs.get(output.table)
        if known is not None:
            if known.topic != topic:
                raise InvalidOption(
                    f"{what}: replies={to!r:.300}; another feed has {known.topic or known.table!r:.300} for them, and "
                    f"both would be in table {output.table!r}: give both the same one"
                )
            if known.keep_rows != keep_rows:
                raise InvalidOption(f"{what}: keep_rows={keep_rows}, and for another feed {known.keep_rows}")
            return output.table
        if is_own_table(self.name, output.table) or output.table in {one.name for one in self._operators.all}:
            raise InvalidOption(
                f"{what}: table {output.table!r} is the program's own; expected another one for replies"
            )
        output.check("replies", REPLY_SCHEMA)
        self._outputs[output.table] = output
        return output.table

    def is_batch(self, operator: str, function: str) -> bool:
        """Whether a function takes batches; `FunctionFault` if there is none."""
        return self._operators.function(operator, function)[1].is_batch

    def state_schema(self, operator: str) -> pa.Schema | None:
        """The columns of its entities' states; `None` without a schema. `FunctionFault` if there is no operator."""
        return self._operators.all[self._operators.number(operator)].schema

    def _check_declaring(self) -> None:
        """`InvalidOption` while the program runs."""
        raise NotImplementedError

    def _check_asking(self) -> None:
        """`ApplicationStopped` unless the program runs; `FunctionFault` within a function or a callback of it."""
        raise NotImplementedError
