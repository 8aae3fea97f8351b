"""What a batch function sees: some requests that share no entity, as Arrow columns."""

from collections.abc import Mapping, Sequence, Set
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tussock.compute.applications.arguments import TEXT_MAX, clean_text
from tussock.compute.functions.entities.forms import StateForm
from tussock.compute.functions.errors import FunctionFault, Interrupt
from tussock.compute.functions.program.context import Entity
from tussock.statestore import SchemaMismatch
from tussock.statestore.rows.python_values import python_values
from tussock.statestore.tables.typed_input import conform

__all__ = ["FunctionBatch", "Overlay", "RoundEnd", "StateSource", "array_of"]


class StateSource(Protocol):
    """Where a batch finds states: the entities, or what was fetched of them."""

    def read_many(self, entities: Sequence[Entity]) -> list[Any]:
        """The stored form of each state, or `None`."""

    def form(self, operator: int) -> StateForm:
        """How states of an operator are stored."""


class Overlay:
    """What the rounds of one request have written so far, over the entities."""

    def __init__(self, entities: StateSource) -> None:
        self._entities = entities
        self.writes: dict[Entity, Any] = {}
        self.interrupt: Interrupt | None = None
        """What has ended the run, which the function may have caught."""

    def read_many(self, entities: Sequence[Entity]) -> list[Any]:
        """The stored form of each state, or `None`."""
        writes = self.writes
        try:
            found = self._entities.read_many([one for one in entities if one not in writes] if writes else entities)
        except Interrupt as error:
            self.interrupt = error
            raise
        if not writes:
            return found
        others = iter(found)
        return [writes[one] if one in writes else next(others) for one in entities]

    def form(self, operator: int) -> StateForm:
        """How states of an operator are stored."""
        return self._entities.form(operator)


class RoundEnd:
    """What a batch function has asked for in a round, for who runs it."""

    def __init__(self, rows: int) -> None:
        self.errors: list[str | None] = [None] * rows
        """Why a row is aborted."""
        self.puts: list[tuple[str | None, list[Any]]] = []
        """By the column that names the entities, what they are to be."""
        self.has_come = False

    def apply(self, writes: dict[Entity, Any], entities: Mapping[str | None, Sequence[Entity]]) -> None:
        """The function has returned: write what the rows that are not aborted have put."""
        self.has_come = True
        errors = self.errors
        for of, states in self.puts:
            if errors.count(None) == len(errors):
                writes.update(zip(entities[of], states, strict=True))
                continue
            rows = zip(entities[of], states, errors, strict=True)
            writes.update({entity: state for entity, state, error in rows if error is None})


class FunctionBatch:
    """What a batch function gets: rows of requests. Valid until it returns; row by row, its arrays belong together."""

    def __init__(
        self, overlay: Overlay, columns: pa.Table, entities: Mapping[str | None, Sequence[Entity]], end: RoundEnd
    ) -> None:
        """`entities`: those of the rows under `None`, and those that columns name under the columns' names."""
        self._overlay = overlay
        self._columns = columns
        self._entities = entities
        self._states: dict[str | None, list[Any]] = {}
        self._end = end

    @property
    def num_rows(self) -> int:
        """Requests."""
        self._check_live()
        return self._columns.num_rows

    @property
    def keys(self) -> pa.Array:
        """The key of each request's entity."""
        return pa.array([key for _, key in self._entities[None]], self._form(None).operator.key_type)

    def __getitem__(self, column: str) -> pa.Array:
        """A column that the caller gave."""
        self._check_live()
        if column not in self._columns.column_names:
            raise FunctionFault(f"the batch has no column {column!r:.100}; it has {self._columns.column_names[:20]}")
        return _one_chunk(self._columns.column(column))

    def exists(self, *, of: str | None = None) -> pa.Array:
        """Whether the entities are there; `of`: those that a column names."""
        return pa.array([state is not None for state in self._stored(of)], pa.bool_())

    def state(self, column: str, *, of: str | None = None) -> pa.Array:
        """A column of the entities' states, null where there is none; `of`: of those that a column names.

        Without a schema it is what the states have under that name, of the type that Arrow finds for it.
        """
        form = self._form(of)
        if form.schema is None:
            states = [None if one is None else form.decode(one).get(column) for one in self._stored(of)]
            return array_of(states, f"{column!r:.100} of operator {form.operator.name!r}")
        at = self._place(form, column)
        assert form.schema is not None
        return pa.array([None if one is None else one[at] for one in self._stored(of)], form.schema.field(column).type)

    def put(self, columns: Mapping[str, Any], *, of: str | None = None) -> None:
        """Replace columns of the entities' states; the other columns stay, and are null where there was no entity.

        `columns`: arrays by name. Rows that are aborted put nothing. If a request names one entity twice, the later
        `put` holds. Raises `FunctionFault` for columns or values that the schema lacks, and for larger ones than fit.
        """
        form, old = self._form(of), self._stored(of)
        if form.schema is None:
            self._end.puts.append((of, self._free_states(form, old, columns, self._entities[of])))
            return
        places = [self._place(form, name) for name in columns]
        fresh = [self._values(form, name, values) for name, values in columns.items()]
        if len(places) == len(form.names):
            ordered = [values for _, values in sorted(zip(places, fresh, strict=True), key=lambda pair: pair[0])]
            self._put(of, form, list(zip(*ordered, strict=True)))
            return
        states = []
        for row, state in enumerate(old):
            values = [None] * len(form.names) if state is None else list(state)
            for place, column in zip(places, fresh, strict=True):
                values[place] = column[row]
            states.append(tuple(values))
        assert form.schema is not None
        is_new = any(state is None and error is None for state, error in zip(old, self._end.errors, strict=True))
        for place, field in enumerate(form.schema):
            if is_new and not field.nullable and place not in places:
                raise FunctionFault(f"operator {form.operator.name!r}: a new entity has no column {field.name!r}")
        self._put(of, form, states)

    def delete(self, *, of: str | None = None) -> None:
        """Let the entities of all rows that are not aborted be gone."""
        self._stored(of)
        self._end.puts.append((of, [None] * self.num_rows))

    def abort(self, where: Any, message: str) -> None:
        """End requests with nothing stored; `where`: booleans, null counts as false. A row's first reason holds.

        Of the message 10,000 characters are kept.
        """
        if not isinstance(message, str):
            raise FunctionFault(f"abort takes a text, found {message!r:.100}")
        message = clean_text(message[:TEXT_MAX])
        mask = _boolean(where, self.num_rows)
        if True not in mask:
            return
        for row, is_aborted in enumerate(mask):
            if is_aborted and self._end.errors[row] is None:
                self._end.errors[row] = message

    def _free_states(
        self, form: StateForm, old: list[Any], columns: Mapping[str, Any], entities: Sequence[Entity]
    ) -> list[Any]:
        """The stored forms of dicts with these values; of rows that are aborted, which put nothing, `None`."""
        fresh = {name: self._given(name, values).to_pylist() for name, values in columns.items()}
        states: list[Any] = []
        for row, (state, error) in enumerate(zip(old, self._end.errors, strict=True)):
            values = {} if state is None else form.decode(state)
            values.update({name: column[row] for name, column in fresh.items()})
            states.append(form.encode(values, entities[row][1]) if error is None else None)
        return states

    def _put(self, of: str | None, form: StateForm, states: list[Any]) -> None:
        if not form.is_even:
            for entity, state in zip(self._entities[of], states, strict=True):
                form.check_row(state, entity[1])
        self._end.puts.append((of, states))

    def _check_live(self) -> None:
        if self._end.has_come:
            raise FunctionFault("the batch function has returned, and its batch with it")

    def _stored(self, of: str | None) -> list[Any]:
        self._check_live()
        if of not in self._states:
            if of not in self._entities:
                raise FunctionFault(f"of={of!r:.100}; the function touches {[name for name in self._entities if name]}")
            self._states[of] = self._overlay.read_many(self._entities[of])
        return self._states[of]

    def _form(self, of: str | None) -> StateForm:
        self._check_live()
        if of not in self._entities:
            raise FunctionFault(f"of={of!r:.100}; the function touches {[name for name in self._entities if name]}")
        # A round has a row.
        return self._overlay.form(self._entities[of][0][0])

    def _place(self, form: StateForm, column: str) -> int:
        if column not in form.names:
            raise FunctionFault(f"operator {form.operator.name!r} has no column {column!r:.100}; it has {form.names}")
        return form.names.index(column)

    def _values(self, form: StateForm, name: str, values: Any) -> list[Any]:
        assert form.schema is not None
        array = self._given(name, values)
        field = form.schema.field(name)
        if array.type != field.type or array.null_count:
            aborted = pa.array([error is not None for error in self._end.errors])
            if array.null_count and not field.nullable:
                # What an aborted row would have put may be null.
                array = pc.if_else(pc.and_(aborted, array.is_null()), _any_value(array), array)
            try:
                rows = pa.RecordBatch.from_arrays([array], [name])
                array = conform(rows, pa.schema([field]), (), form.operator.name).column(0)
            except SchemaMismatch as error:
                raise FunctionFault(str(error)) from error
        return python_values(array)

    def _given(self, name: str, values: Any) -> pa.Array:
        array = array_of(values, f"column {name!r}")
        if len(array) != self.num_rows:
            raise FunctionFault(f"column {name!r} has {len(array)} values for {self.num_rows} rows")
        return array


def array_of(values: Any, what: str) -> pa.Array:
    """What a function gives for all its rows; `FunctionFault` if no array can be made of it."""
    if isinstance(values, pa.ChunkedArray):
        return _one_chunk(values)
    if isinstance(values, pa.Array):
        return values
    try:
        # Of text it would make one of the characters, and of a dict one of its names.
        if isinstance(values, str | bytes | Mapping | Set):
            raise TypeError
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise FunctionFault(f"{what} is {values!r:.100}; expected an array with a value for each row") from error


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _any_value(array: pa.Array) -> pa.Scalar:
    valid = array.drop_null()
    return valid[0] if len(valid) else pa.scalar(0).cast(array.type, safe=False)


def _boolean(where: Any, rows: int) -> list[bool]:
    mask = array_of(where, "what batch.abort() takes")
    if mask.type != pa.bool_() or len(mask) != rows:
        raise FunctionFault(f"abort takes {rows} booleans, found {len(mask)} values of type {mask.type}")
    return mask.fill_null(False).to_pylist()
