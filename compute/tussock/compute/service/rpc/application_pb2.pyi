from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WorkerPart(_message.Message):
    __slots__ = ("data", "is_last")
    DATA_FIELD_NUMBER: _ClassVar[int]
    IS_LAST_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    is_last: bool
    def __init__(self, data: _Optional[bytes] = ..., is_last: _Optional[bool] = ...) -> None: ...

class Requests(_message.Message):
    __slots__ = ("requests", "again")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[Request]
    again: bool
    def __init__(self, requests: _Optional[_Iterable[_Union[Request, _Mapping]]] = ..., again: _Optional[bool] = ...) -> None: ...

class Replies(_message.Message):
    __slots__ = ("replies", "taken_before")
    REPLIES_FIELD_NUMBER: _ClassVar[int]
    TAKEN_BEFORE_FIELD_NUMBER: _ClassVar[int]
    replies: _containers.RepeatedCompositeFieldContainer[Reply]
    taken_before: int
    def __init__(self, replies: _Optional[_Iterable[_Union[Reply, _Mapping]]] = ..., taken_before: _Optional[int] = ...) -> None: ...

class Request(_message.Message):
    __slots__ = ("number", "deadline_ms", "submit", "call", "trace", "window_rows", "stats", "status", "pause", "resume", "drain", "send", "send_many", "query", "call_graph", "push", "subscribe", "history", "bad_rows", "replay_bad", "stream_row", "stream_look", "step", "auto_step", "hold", "set_breakpoint", "change_breakpoint", "what_if", "stream_rows")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    SUBMIT_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    WINDOW_ROWS_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PAUSE_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    SEND_FIELD_NUMBER: _ClassVar[int]
    SEND_MANY_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    CALL_GRAPH_FIELD_NUMBER: _ClassVar[int]
    PUSH_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    BAD_ROWS_FIELD_NUMBER: _ClassVar[int]
    REPLAY_BAD_FIELD_NUMBER: _ClassVar[int]
    STREAM_ROW_FIELD_NUMBER: _ClassVar[int]
    STREAM_LOOK_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    AUTO_STEP_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    SET_BREAKPOINT_FIELD_NUMBER: _ClassVar[int]
    CHANGE_BREAKPOINT_FIELD_NUMBER: _ClassVar[int]
    WHAT_IF_FIELD_NUMBER: _ClassVar[int]
    STREAM_ROWS_FIELD_NUMBER: _ClassVar[int]
    number: int
    deadline_ms: int
    submit: Submit
    call: Call
    trace: Trace
    window_rows: WindowRows
    stats: Stats
    status: Status
    pause: Pause
    resume: Resume
    drain: Drain
    send: Send
    send_many: SendMany
    query: Query
    call_graph: CallGraph
    push: Push
    subscribe: Subscribe
    history: History
    bad_rows: BadRows
    replay_bad: ReplayBad
    stream_row: StreamRow
    stream_look: StreamLook
    step: Step
    auto_step: AutoStep
    hold: Hold
    set_breakpoint: SetBreakpoint
    change_breakpoint: ChangeBreakpoint
    what_if: WhatIf
    stream_rows: StreamRows
    def __init__(self, number: _Optional[int] = ..., deadline_ms: _Optional[int] = ..., submit: _Optional[_Union[Submit, _Mapping]] = ..., call: _Optional[_Union[Call, _Mapping]] = ..., trace: _Optional[_Union[Trace, _Mapping]] = ..., window_rows: _Optional[_Union[WindowRows, _Mapping]] = ..., stats: _Optional[_Union[Stats, _Mapping]] = ..., status: _Optional[_Union[Status, _Mapping]] = ..., pause: _Optional[_Union[Pause, _Mapping]] = ..., resume: _Optional[_Union[Resume, _Mapping]] = ..., drain: _Optional[_Union[Drain, _Mapping]] = ..., send: _Optional[_Union[Send, _Mapping]] = ..., send_many: _Optional[_Union[SendMany, _Mapping]] = ..., query: _Optional[_Union[Query, _Mapping]] = ..., call_graph: _Optional[_Union[CallGraph, _Mapping]] = ..., push: _Optional[_Union[Push, _Mapping]] = ..., subscribe: _Optional[_Union[Subscribe, _Mapping]] = ..., history: _Optional[_Union[History, _Mapping]] = ..., bad_rows: _Optional[_Union[BadRows, _Mapping]] = ..., replay_bad: _Optional[_Union[ReplayBad, _Mapping]] = ..., stream_row: _Optional[_Union[StreamRow, _Mapping]] = ..., stream_look: _Optional[_Union[StreamLook, _Mapping]] = ..., step: _Optional[_Union[Step, _Mapping]] = ..., auto_step: _Optional[_Union[AutoStep, _Mapping]] = ..., hold: _Optional[_Union[Hold, _Mapping]] = ..., set_breakpoint: _Optional[_Union[SetBreakpoint, _Mapping]] = ..., change_breakpoint: _Optional[_Union[ChangeBreakpoint, _Mapping]] = ..., what_if: _Optional[_Union[WhatIf, _Mapping]] = ..., stream_rows: _Optional[_Union[StreamRows, _Mapping]] = ...) -> None: ...

class Submit(_message.Message):
    __slots__ = ("procedure", "batch_id", "arrow", "plain")
    PROCEDURE_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    ARROW_FIELD_NUMBER: _ClassVar[int]
    PLAIN_FIELD_NUMBER: _ClassVar[int]
    procedure: str
    batch_id: int
    arrow: bytes
    plain: bytes
    def __init__(self, procedure: _Optional[str] = ..., batch_id: _Optional[int] = ..., arrow: _Optional[bytes] = ..., plain: _Optional[bytes] = ...) -> None: ...

class Call(_message.Message):
    __slots__ = ("name", "arguments")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    arguments: bytes
    def __init__(self, name: _Optional[str] = ..., arguments: _Optional[bytes] = ...) -> None: ...

class Trace(_message.Message):
    __slots__ = ("last",)
    LAST_FIELD_NUMBER: _ClassVar[int]
    last: int
    def __init__(self, last: _Optional[int] = ...) -> None: ...

class WindowRows(_message.Message):
    __slots__ = ("window", "staged")
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    STAGED_FIELD_NUMBER: _ClassVar[int]
    window: str
    staged: bool
    def __init__(self, window: _Optional[str] = ..., staged: _Optional[bool] = ...) -> None: ...

class Stats(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Status(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Pause(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Resume(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Drain(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Send(_message.Message):
    __slots__ = ("operator", "key", "function", "arguments", "request_id")
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    operator: str
    key: bytes
    function: str
    arguments: bytes
    request_id: str
    def __init__(self, operator: _Optional[str] = ..., key: _Optional[bytes] = ..., function: _Optional[str] = ..., arguments: _Optional[bytes] = ..., request_id: _Optional[str] = ...) -> None: ...

class SendMany(_message.Message):
    __slots__ = ("operator", "function", "arrow")
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    ARROW_FIELD_NUMBER: _ClassVar[int]
    operator: str
    function: str
    arrow: bytes
    def __init__(self, operator: _Optional[str] = ..., function: _Optional[str] = ..., arrow: _Optional[bytes] = ...) -> None: ...

class Query(_message.Message):
    __slots__ = ("operator", "key", "as_row")
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    AS_ROW_FIELD_NUMBER: _ClassVar[int]
    operator: str
    key: bytes
    as_row: bool
    def __init__(self, operator: _Optional[str] = ..., key: _Optional[bytes] = ..., as_row: _Optional[bool] = ...) -> None: ...

class CallGraph(_message.Message):
    __slots__ = ("request_id", "tid")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    tid: int
    def __init__(self, request_id: _Optional[str] = ..., tid: _Optional[int] = ...) -> None: ...

class Push(_message.Message):
    __slots__ = ("stream", "arrow", "plain", "no_wait", "request_id")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    ARROW_FIELD_NUMBER: _ClassVar[int]
    PLAIN_FIELD_NUMBER: _ClassVar[int]
    NO_WAIT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    stream: str
    arrow: bytes
    plain: bytes
    no_wait: bool
    request_id: str
    def __init__(self, stream: _Optional[str] = ..., arrow: _Optional[bytes] = ..., plain: _Optional[bytes] = ..., no_wait: _Optional[bool] = ..., request_id: _Optional[str] = ...) -> None: ...

class Subscribe(_message.Message):
    __slots__ = ("stream", "subscriber", "from_seq", "newest", "blocks", "max", "wait_ms", "buffer", "close", "as_text")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    FROM_SEQ_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    AS_TEXT_FIELD_NUMBER: _ClassVar[int]
    stream: str
    subscriber: str
    from_seq: int
    newest: bool
    blocks: bool
    max: int
    wait_ms: int
    buffer: int
    close: bool
    as_text: bool
    def __init__(self, stream: _Optional[str] = ..., subscriber: _Optional[str] = ..., from_seq: _Optional[int] = ..., newest: _Optional[bool] = ..., blocks: _Optional[bool] = ..., max: _Optional[int] = ..., wait_ms: _Optional[int] = ..., buffer: _Optional[int] = ..., close: _Optional[bool] = ..., as_text: _Optional[bool] = ...) -> None: ...

class History(_message.Message):
    __slots__ = ("stream", "side", "before", "count", "text_records")
    class Side(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        TAKEN: _ClassVar[History.Side]
        PUBLISHED: _ClassVar[History.Side]
    TAKEN: History.Side
    PUBLISHED: History.Side
    STREAM_FIELD_NUMBER: _ClassVar[int]
    SIDE_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    TEXT_RECORDS_FIELD_NUMBER: _ClassVar[int]
    stream: str
    side: History.Side
    before: int
    count: int
    text_records: int
    def __init__(self, stream: _Optional[str] = ..., side: _Optional[_Union[History.Side, str]] = ..., before: _Optional[int] = ..., count: _Optional[int] = ..., text_records: _Optional[int] = ...) -> None: ...

class BadRows(_message.Message):
    __slots__ = ("stream", "last", "before")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    stream: str
    last: int
    before: int
    def __init__(self, stream: _Optional[str] = ..., last: _Optional[int] = ..., before: _Optional[int] = ...) -> None: ...

class ReplayBad(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class StreamRow(_message.Message):
    __slots__ = ("stream", "plain", "arrow")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    PLAIN_FIELD_NUMBER: _ClassVar[int]
    ARROW_FIELD_NUMBER: _ClassVar[int]
    stream: str
    plain: bytes
    arrow: bytes
    def __init__(self, stream: _Optional[str] = ..., plain: _Optional[bytes] = ..., arrow: _Optional[bytes] = ...) -> None: ...

class StreamRows(_message.Message):
    __slots__ = ("stream", "reader", "page")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    READER_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    stream: str
    reader: str
    page: int
    def __init__(self, stream: _Optional[str] = ..., reader: _Optional[str] = ..., page: _Optional[int] = ...) -> None: ...

class StreamLook(_message.Message):
    __slots__ = ("stream", "text_records")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    TEXT_RECORDS_FIELD_NUMBER: _ClassVar[int]
    stream: str
    text_records: int
    def __init__(self, stream: _Optional[str] = ..., text_records: _Optional[int] = ...) -> None: ...

class Step(_message.Message):
    __slots__ = ("what", "stream")
    class What(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ROW: _ClassVar[Step.What]
        TRANSACTION: _ClassVar[Step.What]
        LOCATION: _ClassVar[Step.What]
        QUIESCE: _ClassVar[Step.What]
        QUIESCE_DOWNSTREAM: _ClassVar[Step.What]
        QUIESCE_BASE: _ClassVar[Step.What]
    ROW: Step.What
    TRANSACTION: Step.What
    LOCATION: Step.What
    QUIESCE: Step.What
    QUIESCE_DOWNSTREAM: Step.What
    QUIESCE_BASE: Step.What
    WHAT_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    what: Step.What
    stream: str
    def __init__(self, what: _Optional[_Union[Step.What, str]] = ..., stream: _Optional[str] = ...) -> None: ...

class AutoStep(_message.Message):
    __slots__ = ("seconds", "what")
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    seconds: float
    what: Step.What
    def __init__(self, seconds: _Optional[float] = ..., what: _Optional[_Union[Step.What, str]] = ...) -> None: ...

class Hold(_message.Message):
    __slots__ = ("stream", "is_held")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    IS_HELD_FIELD_NUMBER: _ClassVar[int]
    stream: str
    is_held: bool
    def __init__(self, stream: _Optional[str] = ..., is_held: _Optional[bool] = ...) -> None: ...

class SetBreakpoint(_message.Message):
    __slots__ = ("stream", "on_output", "condition", "every")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    ON_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    EVERY_FIELD_NUMBER: _ClassVar[int]
    stream: str
    on_output: bool
    condition: str
    every: int
    def __init__(self, stream: _Optional[str] = ..., on_output: _Optional[bool] = ..., condition: _Optional[str] = ..., every: _Optional[int] = ...) -> None: ...

class ChangeBreakpoint(_message.Message):
    __slots__ = ("number", "how")
    class How(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ENABLE: _ClassVar[ChangeBreakpoint.How]
        DISABLE: _ClassVar[ChangeBreakpoint.How]
        REMOVE: _ClassVar[ChangeBreakpoint.How]
    ENABLE: ChangeBreakpoint.How
    DISABLE: ChangeBreakpoint.How
    REMOVE: ChangeBreakpoint.How
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    HOW_FIELD_NUMBER: _ClassVar[int]
    number: int
    how: ChangeBreakpoint.How
    def __init__(self, number: _Optional[int] = ..., how: _Optional[_Union[ChangeBreakpoint.How, str]] = ...) -> None: ...

class WhatIf(_message.Message):
    __slots__ = ("seq", "bad", "stream", "text_records")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    BAD_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    TEXT_RECORDS_FIELD_NUMBER: _ClassVar[int]
    seq: int
    bad: int
    stream: str
    text_records: int
    def __init__(self, seq: _Optional[int] = ..., bad: _Optional[int] = ..., stream: _Optional[str] = ..., text_records: _Optional[int] = ...) -> None: ...

class Reply(_message.Message):
    __slots__ = ("number", "plain", "arrow", "error", "hello")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PLAIN_FIELD_NUMBER: _ClassVar[int]
    ARROW_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    number: int
    plain: bytes
    arrow: bytes
    error: Error
    hello: Hello
    def __init__(self, number: _Optional[int] = ..., plain: _Optional[bytes] = ..., arrow: _Optional[bytes] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("kind", "message", "facts", "code")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    kind: str
    message: str
    facts: bytes
    code: str
    def __init__(self, kind: _Optional[str] = ..., message: _Optional[str] = ..., facts: _Optional[bytes] = ..., code: _Optional[str] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("application", "layer", "message_bytes_max", "outstanding_max", "schemas")
    class SchemasEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    LAYER_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    OUTSTANDING_MAX_FIELD_NUMBER: _ClassVar[int]
    SCHEMAS_FIELD_NUMBER: _ClassVar[int]
    application: str
    layer: str
    message_bytes_max: int
    outstanding_max: int
    schemas: _containers.ScalarMap[str, bytes]
    def __init__(self, application: _Optional[str] = ..., layer: _Optional[str] = ..., message_bytes_max: _Optional[int] = ..., outstanding_max: _Optional[int] = ..., schemas: _Optional[_Mapping[str, bytes]] = ...) -> None: ...
