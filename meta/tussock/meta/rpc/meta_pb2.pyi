from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SessionKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SESSION_KIND_UNSPECIFIED: _ClassVar[SessionKind]
    CLIENT: _ClassVar[SessionKind]
    COMPACTOR: _ClassVar[SessionKind]

class OnMissing(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_MISSING_UNSPECIFIED: _ClassVar[OnMissing]
    ABORT: _ClassVar[OnMissing]
    WAIT: _ClassVar[OnMissing]
SESSION_KIND_UNSPECIFIED: SessionKind
CLIENT: SessionKind
COMPACTOR: SessionKind
ON_MISSING_UNSPECIFIED: OnMissing
ABORT: OnMissing
WAIT: OnMissing

class ErrorDetail(_message.Message):
    __slots__ = ("kind", "message", "facts")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    message: str
    facts: _containers.RepeatedCompositeFieldContainer[Fact]
    def __init__(self, kind: _Optional[str] = ..., message: _Optional[str] = ..., facts: _Optional[_Iterable[_Union[Fact, _Mapping]]] = ...) -> None: ...

class Fact(_message.Message):
    __slots__ = ("number", "text", "data")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    number: int
    text: str
    data: bytes
    def __init__(self, number: _Optional[int] = ..., text: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...

class OpenSessionRequest(_message.Message):
    __slots__ = ("session_id", "kind", "name", "software", "pins", "tasks", "oldest_upload", "slots", "retention_ms", "gc_grace_ms")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_FIELD_NUMBER: _ClassVar[int]
    PINS_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    OLDEST_UPLOAD_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    GC_GRACE_MS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    kind: SessionKind
    name: str
    software: str
    pins: _containers.RepeatedCompositeFieldContainer[PinInfo]
    tasks: _containers.RepeatedCompositeFieldContainer[TaskProgress]
    oldest_upload: str
    slots: int
    retention_ms: int
    gc_grace_ms: int
    def __init__(self, session_id: _Optional[str] = ..., kind: _Optional[_Union[SessionKind, str]] = ..., name: _Optional[str] = ..., software: _Optional[str] = ..., pins: _Optional[_Iterable[_Union[PinInfo, _Mapping]]] = ..., tasks: _Optional[_Iterable[_Union[TaskProgress, _Mapping]]] = ..., oldest_upload: _Optional[str] = ..., slots: _Optional[int] = ..., retention_ms: _Optional[int] = ..., gc_grace_ms: _Optional[int] = ...) -> None: ...

class OpenSessionResponse(_message.Message):
    __slots__ = ("lease_ms", "heartbeat_ms", "store_url", "store_options", "hands_out_credentials", "term", "lost_pins", "lost_tasks", "message_bytes_max", "withholds_credentials", "reads_only", "commits_max")
    class StoreOptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    STORE_URL_FIELD_NUMBER: _ClassVar[int]
    STORE_OPTIONS_FIELD_NUMBER: _ClassVar[int]
    HANDS_OUT_CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    LOST_PINS_FIELD_NUMBER: _ClassVar[int]
    LOST_TASKS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    WITHHOLDS_CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    READS_ONLY_FIELD_NUMBER: _ClassVar[int]
    COMMITS_MAX_FIELD_NUMBER: _ClassVar[int]
    lease_ms: int
    heartbeat_ms: int
    store_url: str
    store_options: _containers.ScalarMap[str, str]
    hands_out_credentials: bool
    term: int
    lost_pins: _containers.RepeatedScalarFieldContainer[str]
    lost_tasks: _containers.RepeatedScalarFieldContainer[str]
    message_bytes_max: int
    withholds_credentials: bool
    reads_only: bool
    commits_max: int
    def __init__(self, lease_ms: _Optional[int] = ..., heartbeat_ms: _Optional[int] = ..., store_url: _Optional[str] = ..., store_options: _Optional[_Mapping[str, str]] = ..., hands_out_credentials: _Optional[bool] = ..., term: _Optional[int] = ..., lost_pins: _Optional[_Iterable[str]] = ..., lost_tasks: _Optional[_Iterable[str]] = ..., message_bytes_max: _Optional[int] = ..., withholds_credentials: _Optional[bool] = ..., reads_only: _Optional[bool] = ..., commits_max: _Optional[int] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("session_id", "oldest_upload", "tasks", "slots")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    OLDEST_UPLOAD_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    oldest_upload: str
    tasks: _containers.RepeatedCompositeFieldContainer[TaskProgress]
    slots: int
    def __init__(self, session_id: _Optional[str] = ..., oldest_upload: _Optional[str] = ..., tasks: _Optional[_Iterable[_Union[TaskProgress, _Mapping]]] = ..., slots: _Optional[int] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("term", "lost_tasks", "seq")
    TERM_FIELD_NUMBER: _ClassVar[int]
    LOST_TASKS_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    term: int
    lost_tasks: _containers.RepeatedScalarFieldContainer[str]
    seq: int
    def __init__(self, term: _Optional[int] = ..., lost_tasks: _Optional[_Iterable[str]] = ..., seq: _Optional[int] = ...) -> None: ...

class CloseSessionRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    def __init__(self, session_id: _Optional[str] = ...) -> None: ...

class CloseSessionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetCredentialsRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    def __init__(self, session_id: _Optional[str] = ...) -> None: ...

class GetCredentialsResponse(_message.Message):
    __slots__ = ("access_key_id", "secret_access_key", "session_token", "expires_ms", "renew_ms")
    ACCESS_KEY_ID_FIELD_NUMBER: _ClassVar[int]
    SECRET_ACCESS_KEY_FIELD_NUMBER: _ClassVar[int]
    SESSION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    RENEW_MS_FIELD_NUMBER: _ClassVar[int]
    access_key_id: str
    secret_access_key: str
    session_token: str
    expires_ms: int
    renew_ms: int
    def __init__(self, access_key_id: _Optional[str] = ..., secret_access_key: _Optional[str] = ..., session_token: _Optional[str] = ..., expires_ms: _Optional[int] = ..., renew_ms: _Optional[int] = ...) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("session_id", "after_seq")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQ_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    after_seq: int
    def __init__(self, session_id: _Optional[str] = ..., after_seq: _Optional[int] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("version", "task", "barrier", "closing")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    BARRIER_FIELD_NUMBER: _ClassVar[int]
    CLOSING_FIELD_NUMBER: _ClassVar[int]
    version: VersionUpdate
    task: CompactionTask
    barrier: BarrierEvent
    closing: Closing
    def __init__(self, version: _Optional[_Union[VersionUpdate, _Mapping]] = ..., task: _Optional[_Union[CompactionTask, _Mapping]] = ..., barrier: _Optional[_Union[BarrierEvent, _Mapping]] = ..., closing: _Optional[_Union[Closing, _Mapping]] = ...) -> None: ...

class Closing(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class VersionUpdate(_message.Message):
    __slots__ = ("snapshot", "snapshot_seq", "first_seq", "entries", "seq")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_SEQ_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQ_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    snapshot: bytes
    snapshot_seq: int
    first_seq: int
    entries: _containers.RepeatedScalarFieldContainer[bytes]
    seq: int
    def __init__(self, snapshot: _Optional[bytes] = ..., snapshot_seq: _Optional[int] = ..., first_seq: _Optional[int] = ..., entries: _Optional[_Iterable[bytes]] = ..., seq: _Optional[int] = ...) -> None: ...

class GetVersionRequest(_message.Message):
    __slots__ = ("after_seq",)
    AFTER_SEQ_FIELD_NUMBER: _ClassVar[int]
    after_seq: int
    def __init__(self, after_seq: _Optional[int] = ...) -> None: ...

class GetVersionResponse(_message.Message):
    __slots__ = ("update",)
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    update: VersionUpdate
    def __init__(self, update: _Optional[_Union[VersionUpdate, _Mapping]] = ...) -> None: ...

class TableSpec(_message.Message):
    __slots__ = ("id", "name", "schema", "primary_key", "distribution_key", "vnodes", "block_bytes", "compression", "retention_ms", "ttl_ms", "ttl_column")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    PRIMARY_KEY_FIELD_NUMBER: _ClassVar[int]
    DISTRIBUTION_KEY_FIELD_NUMBER: _ClassVar[int]
    VNODES_FIELD_NUMBER: _ClassVar[int]
    BLOCK_BYTES_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    TTL_COLUMN_FIELD_NUMBER: _ClassVar[int]
    id: int
    name: str
    schema: bytes
    primary_key: _containers.RepeatedScalarFieldContainer[str]
    distribution_key: _containers.RepeatedScalarFieldContainer[str]
    vnodes: int
    block_bytes: int
    compression: str
    retention_ms: int
    ttl_ms: int
    ttl_column: str
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., schema: _Optional[bytes] = ..., primary_key: _Optional[_Iterable[str]] = ..., distribution_key: _Optional[_Iterable[str]] = ..., vnodes: _Optional[int] = ..., block_bytes: _Optional[int] = ..., compression: _Optional[str] = ..., retention_ms: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., ttl_column: _Optional[str] = ...) -> None: ...

class CreateTableRequest(_message.Message):
    __slots__ = ("spec",)
    SPEC_FIELD_NUMBER: _ClassVar[int]
    spec: TableSpec
    def __init__(self, spec: _Optional[_Union[TableSpec, _Mapping]] = ...) -> None: ...

class CreateTableResponse(_message.Message):
    __slots__ = ("spec", "seq")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    spec: TableSpec
    seq: int
    def __init__(self, spec: _Optional[_Union[TableSpec, _Mapping]] = ..., seq: _Optional[int] = ...) -> None: ...

class AlterTableRequest(_message.Message):
    __slots__ = ("name", "add", "widen", "retention_ms", "store_retention")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADD_FIELD_NUMBER: _ClassVar[int]
    WIDEN_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    STORE_RETENTION_FIELD_NUMBER: _ClassVar[int]
    name: str
    add: bytes
    widen: bytes
    retention_ms: int
    store_retention: bool
    def __init__(self, name: _Optional[str] = ..., add: _Optional[bytes] = ..., widen: _Optional[bytes] = ..., retention_ms: _Optional[int] = ..., store_retention: _Optional[bool] = ...) -> None: ...

class AlterTableResponse(_message.Message):
    __slots__ = ("spec", "seq")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    spec: TableSpec
    seq: int
    def __init__(self, spec: _Optional[_Union[TableSpec, _Mapping]] = ..., seq: _Optional[int] = ...) -> None: ...

class DropTableRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DropTableResponse(_message.Message):
    __slots__ = ("seq",)
    SEQ_FIELD_NUMBER: _ClassVar[int]
    seq: int
    def __init__(self, seq: _Optional[int] = ...) -> None: ...

class SstInfo(_message.Message):
    __slots__ = ("id", "smallest", "largest", "rows", "deletes", "data_bytes", "meta_bytes", "epoch", "min_epoch", "max_epoch", "meta_in_data", "source", "entry", "offset", "until", "expires_ms", "head_bytes", "filter_parts")
    ID_FIELD_NUMBER: _ClassVar[int]
    SMALLEST_FIELD_NUMBER: _ClassVar[int]
    LARGEST_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    DELETES_FIELD_NUMBER: _ClassVar[int]
    DATA_BYTES_FIELD_NUMBER: _ClassVar[int]
    META_BYTES_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MIN_EPOCH_FIELD_NUMBER: _ClassVar[int]
    MAX_EPOCH_FIELD_NUMBER: _ClassVar[int]
    META_IN_DATA_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    HEAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    FILTER_PARTS_FIELD_NUMBER: _ClassVar[int]
    id: str
    smallest: bytes
    largest: bytes
    rows: int
    deletes: int
    data_bytes: int
    meta_bytes: int
    epoch: int
    min_epoch: int
    max_epoch: int
    meta_in_data: bool
    source: str
    entry: int
    offset: int
    until: int
    expires_ms: int
    head_bytes: int
    filter_parts: int
    def __init__(self, id: _Optional[str] = ..., smallest: _Optional[bytes] = ..., largest: _Optional[bytes] = ..., rows: _Optional[int] = ..., deletes: _Optional[int] = ..., data_bytes: _Optional[int] = ..., meta_bytes: _Optional[int] = ..., epoch: _Optional[int] = ..., min_epoch: _Optional[int] = ..., max_epoch: _Optional[int] = ..., meta_in_data: _Optional[bool] = ..., source: _Optional[str] = ..., entry: _Optional[int] = ..., offset: _Optional[int] = ..., until: _Optional[int] = ..., expires_ms: _Optional[int] = ..., head_bytes: _Optional[int] = ..., filter_parts: _Optional[int] = ...) -> None: ...

class Run(_message.Message):
    __slots__ = ("ssts",)
    SSTS_FIELD_NUMBER: _ClassVar[int]
    ssts: _containers.RepeatedCompositeFieldContainer[SstInfo]
    def __init__(self, ssts: _Optional[_Iterable[_Union[SstInfo, _Mapping]]] = ...) -> None: ...

class TableRuns(_message.Message):
    __slots__ = ("table_id", "runs")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    runs: _containers.RepeatedCompositeFieldContainer[Run]
    def __init__(self, table_id: _Optional[int] = ..., runs: _Optional[_Iterable[_Union[Run, _Mapping]]] = ...) -> None: ...

class AllocateEpochRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AllocateEpochResponse(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...

class OpenWriterRequest(_message.Message):
    __slots__ = ("writer",)
    WRITER_FIELD_NUMBER: _ClassVar[int]
    writer: str
    def __init__(self, writer: _Optional[str] = ...) -> None: ...

class OpenWriterResponse(_message.Message):
    __slots__ = ("generation",)
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    generation: int
    def __init__(self, generation: _Optional[int] = ...) -> None: ...

class ForgetWritersRequest(_message.Message):
    __slots__ = ("writers", "idle_ms")
    WRITERS_FIELD_NUMBER: _ClassVar[int]
    IDLE_MS_FIELD_NUMBER: _ClassVar[int]
    writers: _containers.RepeatedScalarFieldContainer[str]
    idle_ms: int
    def __init__(self, writers: _Optional[_Iterable[str]] = ..., idle_ms: _Optional[int] = ...) -> None: ...

class ForgetWritersResponse(_message.Message):
    __slots__ = ("forgotten",)
    FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    forgotten: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, forgotten: _Optional[_Iterable[str]] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ("session_id", "epoch", "tables", "writer", "batch_id", "generation", "expect", "source", "payloads", "known_seq", "waited_ms")
    class ExpectEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class PayloadsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    EXPECT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    PAYLOADS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_SEQ_FIELD_NUMBER: _ClassVar[int]
    WAITED_MS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    epoch: int
    tables: _containers.RepeatedCompositeFieldContainer[TableRuns]
    writer: str
    batch_id: int
    generation: int
    expect: _containers.ScalarMap[int, int]
    source: str
    payloads: _containers.ScalarMap[str, bytes]
    known_seq: int
    waited_ms: int
    def __init__(self, session_id: _Optional[str] = ..., epoch: _Optional[int] = ..., tables: _Optional[_Iterable[_Union[TableRuns, _Mapping]]] = ..., writer: _Optional[str] = ..., batch_id: _Optional[int] = ..., generation: _Optional[int] = ..., expect: _Optional[_Mapping[int, int]] = ..., source: _Optional[str] = ..., payloads: _Optional[_Mapping[str, bytes]] = ..., known_seq: _Optional[int] = ..., waited_ms: _Optional[int] = ...) -> None: ...

class CommitResponse(_message.Message):
    __slots__ = ("epoch", "seq", "retry_after_ms", "stall_reason", "update", "refused")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    STALL_REASON_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    seq: int
    retry_after_ms: int
    stall_reason: str
    update: VersionUpdate
    refused: str
    def __init__(self, epoch: _Optional[int] = ..., seq: _Optional[int] = ..., retry_after_ms: _Optional[int] = ..., stall_reason: _Optional[str] = ..., update: _Optional[_Union[VersionUpdate, _Mapping]] = ..., refused: _Optional[str] = ...) -> None: ...

class CommitEachRequest(_message.Message):
    __slots__ = ("session_id", "known_seq", "commits")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    KNOWN_SEQ_FIELD_NUMBER: _ClassVar[int]
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    known_seq: int
    commits: _containers.RepeatedCompositeFieldContainer[CommitRequest]
    def __init__(self, session_id: _Optional[str] = ..., known_seq: _Optional[int] = ..., commits: _Optional[_Iterable[_Union[CommitRequest, _Mapping]]] = ...) -> None: ...

class CommitEachResponse(_message.Message):
    __slots__ = ("commits", "update")
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    commits: _containers.RepeatedCompositeFieldContainer[CommitResponse]
    update: VersionUpdate
    def __init__(self, commits: _Optional[_Iterable[_Union[CommitResponse, _Mapping]]] = ..., update: _Optional[_Union[VersionUpdate, _Mapping]] = ...) -> None: ...

class PinInfo(_message.Message):
    __slots__ = ("id", "epoch", "owner", "created_ms", "expires_ms", "seq", "unkept")
    ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    UNKEPT_FIELD_NUMBER: _ClassVar[int]
    id: str
    epoch: int
    owner: str
    created_ms: int
    expires_ms: int
    seq: int
    unkept: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, id: _Optional[str] = ..., epoch: _Optional[int] = ..., owner: _Optional[str] = ..., created_ms: _Optional[int] = ..., expires_ms: _Optional[int] = ..., seq: _Optional[int] = ..., unkept: _Optional[_Iterable[int]] = ...) -> None: ...

class PinRequest(_message.Message):
    __slots__ = ("session_id", "epoch", "token")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    epoch: int
    token: str
    def __init__(self, session_id: _Optional[str] = ..., epoch: _Optional[int] = ..., token: _Optional[str] = ...) -> None: ...

class PinResponse(_message.Message):
    __slots__ = ("pin", "seq")
    PIN_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    pin: PinInfo
    seq: int
    def __init__(self, pin: _Optional[_Union[PinInfo, _Mapping]] = ..., seq: _Optional[int] = ...) -> None: ...

class UnpinRequest(_message.Message):
    __slots__ = ("session_id", "pin_id")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    PIN_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    pin_id: str
    def __init__(self, session_id: _Optional[str] = ..., pin_id: _Optional[str] = ...) -> None: ...

class UnpinResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListPinsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListPinsResponse(_message.Message):
    __slots__ = ("pins",)
    PINS_FIELD_NUMBER: _ClassVar[int]
    pins: _containers.RepeatedCompositeFieldContainer[PinInfo]
    def __init__(self, pins: _Optional[_Iterable[_Union[PinInfo, _Mapping]]] = ...) -> None: ...

class JoinCheckpointRequest(_message.Message):
    __slots__ = ("session_id", "job", "participant", "participants", "interval_ms", "timeout_ms", "on_missing", "incarnation", "seen_barrier")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANT_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANTS_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    ON_MISSING_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SEEN_BARRIER_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    job: str
    participant: str
    participants: int
    interval_ms: int
    timeout_ms: int
    on_missing: OnMissing
    incarnation: str
    seen_barrier: int
    def __init__(self, session_id: _Optional[str] = ..., job: _Optional[str] = ..., participant: _Optional[str] = ..., participants: _Optional[int] = ..., interval_ms: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., on_missing: _Optional[_Union[OnMissing, str]] = ..., incarnation: _Optional[str] = ..., seen_barrier: _Optional[int] = ...) -> None: ...

class JoinCheckpointResponse(_message.Message):
    __slots__ = ("generation", "committed_epoch", "barrier")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    BARRIER_FIELD_NUMBER: _ClassVar[int]
    generation: int
    committed_epoch: int
    barrier: int
    def __init__(self, generation: _Optional[int] = ..., committed_epoch: _Optional[int] = ..., barrier: _Optional[int] = ...) -> None: ...

class BarrierEvent(_message.Message):
    __slots__ = ("job", "what", "barrier", "epoch", "next_epoch", "committed_epoch", "reason", "participant", "generation")
    class What(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        WHAT_UNSPECIFIED: _ClassVar[BarrierEvent.What]
        STARTED: _ClassVar[BarrierEvent.What]
        BARRIER: _ClassVar[BarrierEvent.What]
        COMMITTED: _ClassVar[BarrierEvent.What]
        ABORTED: _ClassVar[BarrierEvent.What]
    WHAT_UNSPECIFIED: BarrierEvent.What
    STARTED: BarrierEvent.What
    BARRIER: BarrierEvent.What
    COMMITTED: BarrierEvent.What
    ABORTED: BarrierEvent.What
    JOB_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    BARRIER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NEXT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANT_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    job: str
    what: BarrierEvent.What
    barrier: int
    epoch: int
    next_epoch: int
    committed_epoch: int
    reason: str
    participant: str
    generation: int
    def __init__(self, job: _Optional[str] = ..., what: _Optional[_Union[BarrierEvent.What, str]] = ..., barrier: _Optional[int] = ..., epoch: _Optional[int] = ..., next_epoch: _Optional[int] = ..., committed_epoch: _Optional[int] = ..., reason: _Optional[str] = ..., participant: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class CollectBarrierRequest(_message.Message):
    __slots__ = ("session_id", "job", "participant", "generation", "barrier", "tables")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANT_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    BARRIER_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    job: str
    participant: str
    generation: int
    barrier: int
    tables: _containers.RepeatedCompositeFieldContainer[TableRuns]
    def __init__(self, session_id: _Optional[str] = ..., job: _Optional[str] = ..., participant: _Optional[str] = ..., generation: _Optional[int] = ..., barrier: _Optional[int] = ..., tables: _Optional[_Iterable[_Union[TableRuns, _Mapping]]] = ...) -> None: ...

class CollectBarrierResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LeaveCheckpointRequest(_message.Message):
    __slots__ = ("session_id", "job", "participant", "generation", "done", "reason")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANT_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    job: str
    participant: str
    generation: int
    done: bool
    reason: str
    def __init__(self, session_id: _Optional[str] = ..., job: _Optional[str] = ..., participant: _Optional[str] = ..., generation: _Optional[int] = ..., done: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class LeaveCheckpointResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CompactionTask(_message.Message):
    __slots__ = ("id", "table_id", "kind", "inputs", "target_level", "bottom", "watermark", "expires_ms", "table", "claimed_ms", "owner", "gc_horizon", "parted")
    ID_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    TARGET_LEVEL_FIELD_NUMBER: _ClassVar[int]
    BOTTOM_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    CLAIMED_MS_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    GC_HORIZON_FIELD_NUMBER: _ClassVar[int]
    PARTED_FIELD_NUMBER: _ClassVar[int]
    id: str
    table_id: int
    kind: str
    inputs: _containers.RepeatedCompositeFieldContainer[Run]
    target_level: int
    bottom: bool
    watermark: int
    expires_ms: int
    table: TableSpec
    claimed_ms: int
    owner: str
    gc_horizon: str
    parted: bool
    def __init__(self, id: _Optional[str] = ..., table_id: _Optional[int] = ..., kind: _Optional[str] = ..., inputs: _Optional[_Iterable[_Union[Run, _Mapping]]] = ..., target_level: _Optional[int] = ..., bottom: _Optional[bool] = ..., watermark: _Optional[int] = ..., expires_ms: _Optional[int] = ..., table: _Optional[_Union[TableSpec, _Mapping]] = ..., claimed_ms: _Optional[int] = ..., owner: _Optional[str] = ..., gc_horizon: _Optional[str] = ..., parted: _Optional[bool] = ...) -> None: ...

class TaskProgress(_message.Message):
    __slots__ = ("task_id", "rows_read")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ROWS_READ_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    rows_read: int
    def __init__(self, task_id: _Optional[str] = ..., rows_read: _Optional[int] = ...) -> None: ...

class CompactRequest(_message.Message):
    __slots__ = ("table", "since_seq")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    SINCE_SEQ_FIELD_NUMBER: _ClassVar[int]
    table: str
    since_seq: int
    def __init__(self, table: _Optional[str] = ..., since_seq: _Optional[int] = ...) -> None: ...

class CompactResponse(_message.Message):
    __slots__ = ("done", "compactors", "paused", "error")
    DONE_FIELD_NUMBER: _ClassVar[int]
    COMPACTORS_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    done: bool
    compactors: int
    paused: bool
    error: ErrorDetail
    def __init__(self, done: _Optional[bool] = ..., compactors: _Optional[int] = ..., paused: _Optional[bool] = ..., error: _Optional[_Union[ErrorDetail, _Mapping]] = ...) -> None: ...

class ReportTaskRequest(_message.Message):
    __slots__ = ("session_id", "task_id", "outputs", "watermark")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    task_id: str
    outputs: _containers.RepeatedCompositeFieldContainer[SstInfo]
    watermark: int
    def __init__(self, session_id: _Optional[str] = ..., task_id: _Optional[str] = ..., outputs: _Optional[_Iterable[_Union[SstInfo, _Mapping]]] = ..., watermark: _Optional[int] = ...) -> None: ...

class ReportTaskResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReturnTaskRequest(_message.Message):
    __slots__ = ("session_id", "task_id", "reason", "error")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    task_id: str
    reason: str
    error: ErrorDetail
    def __init__(self, session_id: _Optional[str] = ..., task_id: _Optional[str] = ..., reason: _Optional[str] = ..., error: _Optional[_Union[ErrorDetail, _Mapping]] = ...) -> None: ...

class ReturnTaskResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PauseCompactionRequest(_message.Message):
    __slots__ = ("paused", "reason")
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    paused: bool
    reason: str
    def __init__(self, paused: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class PauseCompactionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class VacuumRequest(_message.Message):
    __slots__ = ("dry_run",)
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    dry_run: bool
    def __init__(self, dry_run: _Optional[bool] = ...) -> None: ...

class VacuumResponse(_message.Message):
    __slots__ = ("deleted", "kept_young", "bytes_freed", "gc_horizon")
    class Deleted(_message.Message):
        __slots__ = ("path", "reason")
        PATH_FIELD_NUMBER: _ClassVar[int]
        REASON_FIELD_NUMBER: _ClassVar[int]
        path: str
        reason: str
        def __init__(self, path: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...
    DELETED_FIELD_NUMBER: _ClassVar[int]
    KEPT_YOUNG_FIELD_NUMBER: _ClassVar[int]
    BYTES_FREED_FIELD_NUMBER: _ClassVar[int]
    GC_HORIZON_FIELD_NUMBER: _ClassVar[int]
    deleted: _containers.RepeatedCompositeFieldContainer[VacuumResponse.Deleted]
    kept_young: int
    bytes_freed: int
    gc_horizon: str
    def __init__(self, deleted: _Optional[_Iterable[_Union[VacuumResponse.Deleted, _Mapping]]] = ..., kept_young: _Optional[int] = ..., bytes_freed: _Optional[int] = ..., gc_horizon: _Optional[str] = ...) -> None: ...

class BackupInfo(_message.Message):
    __slots__ = ("name", "created_ms", "epoch", "seq", "ssts", "bytes", "comment", "id", "owner", "holder", "base", "started_seq", "expires_ms", "held_bytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    SSTS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    STARTED_SEQ_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    HELD_BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    created_ms: int
    epoch: int
    seq: int
    ssts: int
    bytes: int
    comment: str
    id: str
    owner: str
    holder: str
    base: str
    started_seq: int
    expires_ms: int
    held_bytes: int
    def __init__(self, name: _Optional[str] = ..., created_ms: _Optional[int] = ..., epoch: _Optional[int] = ..., seq: _Optional[int] = ..., ssts: _Optional[int] = ..., bytes: _Optional[int] = ..., comment: _Optional[str] = ..., id: _Optional[str] = ..., owner: _Optional[str] = ..., holder: _Optional[str] = ..., base: _Optional[str] = ..., started_seq: _Optional[int] = ..., expires_ms: _Optional[int] = ..., held_bytes: _Optional[int] = ...) -> None: ...

class CreateBackupRequest(_message.Message):
    __slots__ = ("name", "comment", "backup_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    BACKUP_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    comment: str
    backup_id: str
    def __init__(self, name: _Optional[str] = ..., comment: _Optional[str] = ..., backup_id: _Optional[str] = ...) -> None: ...

class CreateBackupResponse(_message.Message):
    __slots__ = ("backup",)
    BACKUP_FIELD_NUMBER: _ClassVar[int]
    backup: BackupInfo
    def __init__(self, backup: _Optional[_Union[BackupInfo, _Mapping]] = ...) -> None: ...

class ListBackupsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListBackupsResponse(_message.Message):
    __slots__ = ("backups",)
    BACKUPS_FIELD_NUMBER: _ClassVar[int]
    backups: _containers.RepeatedCompositeFieldContainer[BackupInfo]
    def __init__(self, backups: _Optional[_Iterable[_Union[BackupInfo, _Mapping]]] = ...) -> None: ...

class DeleteBackupRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteBackupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HandOverRequest(_message.Message):
    __slots__ = ("address",)
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    address: str
    def __init__(self, address: _Optional[str] = ...) -> None: ...

class HandOverResponse(_message.Message):
    __slots__ = ("term",)
    TERM_FIELD_NUMBER: _ClassVar[int]
    term: int
    def __init__(self, term: _Optional[int] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: bytes
    def __init__(self, status: _Optional[bytes] = ...) -> None: ...
