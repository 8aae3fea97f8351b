"""The settings of `tussock meta serve`: every option, its default and its bounds, grouped as in the file.

`sources.py` fills them from flags, environment and file. `docs/meta-service.md` has the table, which a test compares
with this. The core of the service takes plain values (`NodeOptions`), so only `serve.py` and what it wires see these.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr

from tussock.meta.compaction.picker_config import PickerConfig
from tussock.meta.node.settings.groups import (
    Address,
    AddressOrNothing,
    ClientSettings,
    LogSettings,
    OidcSettings,
    Seconds,
    SecondsOrNever,
    ServiceAccountSettings,
    SettingsGroup,
    TlsSettings,
    TokenSettings,
    access_contradictions,
)
from tussock.meta.server.settings.node_options import NodeOptions
from tussock.statestore.buckets.urls import is_endpoint, parse_bucket_url

__all__ = ["MetaSettings", "contradictions", "node_options"]


def _store(value: str) -> str:
    where = parse_bucket_url(value)
    if where.scheme == "memory":
        raise ValueError("is in the memory of one process, and clients and compactors have their own; give a bucket")
    return str(where)


_NODE = NodeOptions()
_PICKER = PickerConfig()


class OutsideSettings(SettingsGroup):
    """A second address, for clients that cannot reach what the replicas advertise."""

    listen: AddressOrNothing = Field(
        default="", description="where gRPC is served for clients outside; empty for nowhere"
    )
    file: str = Field(
        default="",
        description="file with the address outside of each replica, by the one that it advertises; read again when it "
        "changes",
    )


class LeaderSettings(SettingsGroup):
    """How replicas agree on who leads."""

    lease_seconds: Seconds = Field(
        default=_NODE.leader_lease_seconds, description="how long a leader leads without renewing its lease"
    )
    poll_seconds: Seconds = Field(
        default=_NODE.log_poll_seconds,
        description="how often a replica looks for entries of others in the log; at most a lease",
    )


class SessionSettings(SettingsGroup):
    """What a client that falls silent loses, and when."""

    # Clients send a heartbeat each quarter of it, which a pause of any process or network delays by that much.
    lease_seconds: Annotated[float, Field(ge=1, le=10**9, allow_inf_nan=False)] = Field(
        default=_NODE.session_lease_seconds,
        description="seconds without a heartbeat after which a session ends; 1 at least",
    )
    pin_lease_seconds: Seconds = Field(
        default=_NODE.pin_lease_seconds, description="how long a pin in the bucket outlives the leader"
    )


class VersionSettings(SettingsGroup):
    """What the store keeps. Without a value the store's own holds."""

    retention_seconds: SecondsOrNever | None = Field(
        default=None, description="how long epochs stay readable without a pin; becomes the store's"
    )
    gc_grace_seconds: SecondsOrNever | None = Field(
        default=None, description="vacuum leaves alone what is younger; becomes the store's"
    )
    max_clock_ahead_seconds: Seconds = Field(
        default=_NODE.max_clock_ahead_seconds,
        description="how far the clock of a leader, and an epoch, may be ahead of the bucket's clock",
    )


class VacuumSettings(SettingsGroup):
    """When garbage is deleted."""

    interval_seconds: SecondsOrNever = Field(
        default=_NODE.vacuum_interval_seconds, description="time between two vacuums; 0 for none"
    )


class CompactionSettings(SettingsGroup):
    """When tables are compacted, and by how many tasks."""

    tasks_per_table: int = Field(
        default=_NODE.tasks_per_table, ge=1, description="compaction tasks of one table that run at once"
    )
    stuck_seconds: Seconds = Field(
        default=_NODE.stuck_task_seconds, description="seconds without progress after which a task is taken back"
    )
    base_bytes: int = Field(default=_PICKER.base_bytes, ge=1, description="what L1 of a table may hold")
    level_ratio: int = Field(
        default=_PICKER.level_ratio, ge=2, description="how many times more each further level may hold"
    )
    l0_merge_min: int = Field(default=_PICKER.l0_merge_min, ge=2, description="runs of L0 that are merged at least")
    l0_merge_max: int = Field(default=_PICKER.l0_merge_max, ge=2, description="runs of L0 that are merged at most")
    l0_runs_max: int = Field(
        default=_PICKER.l0_runs_max, ge=1, description="L0 is compacted into L1 once it has this many runs"
    )
    l0_stall_runs: int = Field(
        default=_PICKER.l0_stall_runs, ge=2, description="writers are held back once L0 has this many runs"
    )
    task_bytes_max: int = Field(
        default=_PICKER.task_bytes_max, ge=1, description="input of one task that nobody asked for"
    )
    tombstone_percent: int = Field(
        default=_PICKER.tombstone_percent, ge=1, le=100, description="share of deletes from which an SST is merged down"
    )


class CheckpointSettings(SettingsGroup):
    """Barriers, where a job does not choose for itself."""

    interval_seconds: Seconds = Field(
        default=_NODE.checkpoint_interval_seconds, description="time between two barriers"
    )
    timeout_seconds: Seconds = Field(
        default=_NODE.checkpoint_timeout_seconds, description="how long a barrier may take"
    )


class BucketSettings(SettingsGroup):
    """How to reach the bucket: for the service, and handed to clients. Empty ones come from the environment."""

    endpoint: str = Field(default="", description="URL of the S3 server; `AWS_ENDPOINT_URL` if empty")
    region: str = Field(default="", description="region of the bucket; `AWS_REGION` if empty")
    allow_http: bool | None = Field(
        default=None, description="whether a plain `http://` endpoint is used; `AWS_ALLOW_HTTP`"
    )


class CredentialSettings(SettingsGroup):
    """Which credentials of the bucket clients are given."""

    mode: Literal["none", "static", "assume-role"] = Field(
        default="none",
        description="`none`: clients have their own; `static`: the pair below; `assume-role`: short-lived ones",
    )
    access_key_id: str = Field(
        default="", description="`static`: handed out; `assume-role`: signs the request; `AWS_ACCESS_KEY_ID` if empty"
    )
    secret_access_key: SecretStr = Field(
        default=SecretStr(""), description="its secret; `AWS_SECRET_ACCESS_KEY` if empty; never a flag"
    )
    reader_access_key_id: str = Field(
        default="", description="`static`: handed out to readers, who get nothing if it is empty"
    )
    reader_secret_access_key: SecretStr = Field(default=SecretStr(""), description="its secret; never a flag")
    reader_folder: str = Field(
        default="",
        description="`static`: folder with that pair in two files, `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, "
        "read again when they change",
    )
    sts_endpoint: str = Field(default="", description="`assume-role`: URL of the STS; the bucket's endpoint if empty")
    role_arn: str = Field(default="", description="`assume-role`: the role; MinIO needs none")
    duration_seconds: int = Field(
        default=3600, ge=3600, le=43200, description="`assume-role`: how long credentials last"
    )


class LimitSettings(SettingsGroup):
    """What one caller may ask for."""

    message_bytes: int = Field(
        default=_NODE.message_bytes_max, ge=1 << 10, le=256 << 20, description="largest request that names SSTs"
    )
    calls_per_second: SecondsOrNever = Field(
        default=5000.0, description="calls of one identity on one host over time; 0: no limit"
    )
    calls_burst: int = Field(
        default=10000, ge=1, description="calls of one identity on one host at once, after a pause"
    )


class MetaSettings(SettingsGroup):
    """All settings of one replica."""

    store: Annotated[str, AfterValidator(_store)] = Field(description="URL of the store's bucket; required")
    listen: Address = Field(default="127.0.0.1:7370", description="where gRPC is served")
    advertise: AddressOrNothing = Field(
        default="",
        description="where clients reach this replica; `listen` if empty, its host replaced by the machine's name",
    )
    http_listen: AddressOrNothing = Field(
        default="127.0.0.1:7371", description="where console, `/metrics` and `/healthz` are served; empty for nowhere"
    )
    drain_seconds: SecondsOrNever = Field(default=10.0, description="how long SIGTERM waits for running calls")
    outside: OutsideSettings = OutsideSettings()
    leader: LeaderSettings = LeaderSettings()
    session: SessionSettings = SessionSettings()
    versions: VersionSettings = VersionSettings()
    vacuum: VacuumSettings = VacuumSettings()
    compaction: CompactionSettings = CompactionSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    bucket: BucketSettings = BucketSettings()
    credentials: CredentialSettings = CredentialSettings()
    tls: TlsSettings = TlsSettings()
    tokens: TokenSettings = TokenSettings()
    clients: ClientSettings = ClientSettings()
    accounts: ServiceAccountSettings = ServiceAccountSettings()
    oidc: OidcSettings = OidcSettings()
    limits: LimitSettings = LimitSettings()
    log: LogSettings = LogSettings()


def contradictions(settings: MetaSettings) -> list[tuple[str, str]]:
    """Pairs (option, what is wrong) of values that are right each, and cannot work together."""
    compaction = settings.compaction
    found = access_contradictions(settings.tls, settings.tokens, settings.clients)
    if bool(settings.outside.listen) != bool(settings.outside.file):
        missing = "file" if settings.outside.listen else "listen"
        found.append((f"outside.{missing}", "outside.listen and outside.file belong together"))
    if settings.leader.poll_seconds > settings.leader.lease_seconds:
        lease = f"leader.lease_seconds, {settings.leader.lease_seconds:g}"
        found.append(("leader.poll_seconds", f"is more than {lease}: replicas would see changes of leaders too late"))
    if compaction.l0_merge_max < compaction.l0_merge_min:
        found.append(("compaction.l0_merge_max", f"is less than compaction.l0_merge_min, {compaction.l0_merge_min}"))
    if compaction.l0_stall_runs <= compaction.l0_runs_max:
        found.append(
            ("compaction.l0_stall_runs", f"would hold writers back before L0 is full, at {compaction.l0_runs_max} runs")
        )
    found += [
        (name, f"is {url!r}; expected a URL of a server, such as https://minio.example:9000")
        for name, url in (
            ("bucket.endpoint", settings.bucket.endpoint),
            ("credentials.sts_endpoint", settings.credentials.sts_endpoint),
        )
        if url and not is_endpoint(url)
    ]
    api = settings.accounts.api
    if api and not (is_endpoint(api) and api.startswith("https://")):
        # An eavesdropper would have the service's token, and those of its clients.
        found.append(("accounts.api", f"is {api!r}; expected an https:// URL, such as https://10.0.0.1:443"))
    if settings.accounts.audience and not settings.clients.file:
        found.append(("accounts.audience", "no service account would have a role: set clients.file"))
    handed = settings.credentials
    if bool(handed.reader_access_key_id) != bool(handed.reader_secret_access_key.get_secret_value()):
        found.append(
            ("credentials.reader_access_key_id", "it and credentials.reader_secret_access_key belong together")
        )
    found += [
        (f"credentials.{name}", "only the mode `static` hands it out")
        for name in ("reader_access_key_id", "reader_folder")
        if getattr(handed, name) and handed.mode != "static"
    ]
    if handed.reader_access_key_id and handed.reader_folder:
        found.append(
            ("credentials.reader_folder", "readers' pair is in credentials.reader_access_key_id; which holds?")
        )
    if settings.credentials.mode != "none" and not settings.store.startswith("s3://"):
        found.append(("credentials.mode", "credentials can be handed out for s3:// stores only"))
    return found


def node_options(settings: MetaSettings, address: str, store_options: dict[str, str]) -> NodeOptions:
    """What the core needs to know; `address` is where clients reach this replica."""
    sizes = settings.compaction.model_dump(exclude={"tasks_per_table", "stuck_seconds"})
    return NodeOptions(
        store_url=settings.store,
        store_options=store_options,
        hands_out_to_readers=settings.credentials.mode != "static"
        or bool(settings.credentials.reader_access_key_id or settings.credentials.reader_folder),
        address=address,
        message_bytes_max=settings.limits.message_bytes,
        leader_lease_seconds=settings.leader.lease_seconds,
        session_lease_seconds=settings.session.lease_seconds,
        pin_lease_seconds=settings.session.pin_lease_seconds,
        log_poll_seconds=settings.leader.poll_seconds,
        retention_seconds=settings.versions.retention_seconds,
        gc_grace_seconds=settings.versions.gc_grace_seconds,
        max_clock_ahead_seconds=settings.versions.max_clock_ahead_seconds,
        picker=PickerConfig(**sizes),
        tasks_per_table=settings.compaction.tasks_per_table,
        stuck_task_seconds=settings.compaction.stuck_seconds,
        vacuum_interval_seconds=settings.vacuum.interval_seconds,
        checkpoint_interval_seconds=settings.checkpoint.interval_seconds,
        checkpoint_timeout_seconds=settings.checkpoint.timeout_seconds,
    )
