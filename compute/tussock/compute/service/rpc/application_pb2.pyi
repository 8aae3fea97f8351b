from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

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
    __slots__ = ("number", "deadline_ms", "submit", "call", "trace", "window_rows", "stats", "status", "pause", "resume", "drain", "send", "send_many", "query", "call_graph")
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
    def __init__(self, number: _Optional[int] = ..., deadline_ms: _Optional[int] = ..., submit: _Optional[_Union[Submit, _Mapping]] = ..., call: _Optional[_Union[Call, _Mapping]] = ..., trace: _Optional[_Union[Trace, _Mapping]] = ..., window_rows: _Optional[_Union[WindowRows, _Mapping]] = ..., stats: _Optional[_Union[Stats, _Mapping]] = ..., status: _Optional[_Union[Status, _Mapping]] = ..., pause: _Optional[_Union[Pause, _Mapping]] = ..., resume: _Optional[_Union[Resume, _Mapping]] = ..., drain: _Optional[_Union[Drain, _Mapping]] = ..., send: _Optional[_Union[Send, _Mapping]] = ..., send_many: _Optional[_Union[SendMany, _Mapping]] = ..., query: _Optional[_Union[Query, _Mapping]] = ..., call_graph: _Optional[_Union[CallGraph, _Mapping]] = ...) -> None: ...

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
    __slots__ = ("operator", "key")
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    operator: str
    key: bytes
    def __init__(self, operator: _Optional[str] = ..., key: _Optional[bytes] = ...) -> None: ...

class CallGraph(_message.Message):
    __slots__ = ("request_id", "tid")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    tid: int
    def __init__(self, request_id: _Optional[str] = ..., tid: _Optional[int] = ...) -> None: ...

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
