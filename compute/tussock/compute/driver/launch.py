"""From a container's environment to a running application, and to its end.

| variable | |
|---|---|
| `TUSSOCK_SPARK_CONF` | file of Spark's settings, as `spark-defaults.conf` |
| `TUSSOCK_EXECUTORS_FILE` | holds the number of executors, or a goal; absent: Spark decides (dynamic allocation) |
| `TUSSOCK_COMPUTE_MODE` | `Streaming`: ready when a stream runs; `Batch`: ready when Spark runs |
| `TUSSOCK_STATUS_PORT` | of the HTTP endpoint |
| `TUSSOCK_DRAIN_SECONDS` | seconds after SIGTERM in which the process ends |
| `TUSSOCK_TERMINATION_FILE` | gets the failure's reason in one line, the end of its traceback, and the newest commit |
| `TUSSOCK_CHECKPOINT` | folder of the checkpoint's volume, whose room is watched |
| `TUSSOCK_PROGRAM`, `TUSSOCK_PROGRAM_SHA256` | the program in the store's bucket, in place of a file, and its digest |
| `TUSSOCK_EVENT_LOG` | the job under whose name the store's bucket gets Spark's event log; absent: none is written |
| `TUSSOCK_EVENT_LOG_COUNT`, `TUSSOCK_EVENT_LOG_BYTES` | how many logs of the job are kept, and of how many bytes |
| `POD_IP`, `POD_NAME` | where executors reach the driver, and the pod that they belong to |

The exit code is the application's; `OUTAGE` if it failed because the store was away; `DRAINED` after SIGTERM, even if
the application then ended by itself: a job that was asked to stop has not completed.
"""

import logging
import os
import runpy
import signal
import sys
import tempfile
import threading
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import NoReturn

import msgspec

from tussock.compute.driver.answers import serve_status
from tussock.compute.driver.context import SPARK_GONE, active_queries, running_context
from tussock.compute.driver.disk import DiskWatch
from tussock.compute.driver.drain import stop_queries
from tussock.compute.driver.event_log import EventLog
from tussock.compute.driver.failures import OUTAGE, cause_of, committed_line, is_outage, termination_message
from tussock.compute.driver.program import digest_of, fetch_program
from tussock.compute.driver.scale import Scaler, first_number, wanted_executors
from tussock.compute.driver.watch import Watch
from tussock.compute.spark.batches.commits import latest_commit
from tussock.compute.spark.batches.notes import NOTES_FOLDER
from tussock.statestore import connect
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.service_logs import start_logging
from tussock.statestore.base.system import System
from tussock.statestore.contract.object_store import ObjectStore

__all__ = ["DRAINED", "Settings", "run", "settings_from", "submit_arguments"]

log = get_logger("tussock.compute")

DRAINED = 143
"""128 + SIGTERM: the exit code that a shell reports for a process that this signal ended."""

_REST_SECONDS = 5.0
"""Time for an application to end by itself after its streams have stopped, before Spark is stopped under it."""


class Settings(msgspec.Struct, frozen=True):
    """The settings from the environment."""

    conf: str = ""
    executors_file: Path = Path("/etc/tussock/compute/executors")
    is_stream: bool = True
    status_port: int = 7372
    drain_seconds: float = 45.0
    termination_file: str = ""
    checkpoint: str = ""
    store: str = ""
    program: str = ""
    program_sha256: str = ""
    event_log: str = ""
    event_log_count: int = 10
    event_log_bytes: int = 256 << 20
    host: str = ""
    pod: str = ""


def settings_from(environ: MutableMapping[str, str]) -> Settings:
    """The settings; raises `ValueError` if one is invalid."""
    base = Settings()
    return Settings(
        conf=environ.get("TUSSOCK_SPARK_CONF", ""),
        executors_file=Path(environ.get("TUSSOCK_EXECUTORS_FILE", base.executors_file)),
        is_stream=environ.get("TUSSOCK_COMPUTE_MODE", "Streaming") == "Streaming",
        status_port=int(environ.get("TUSSOCK_STATUS_PORT", base.status_port)),
        drain_seconds=float(environ.get("TUSSOCK_DRAIN_SECONDS", base.drain_seconds)),
        termination_file=environ.get("TUSSOCK_TERMINATION_FILE", ""),
        checkpoint=environ.get("TUSSOCK_CHECKPOINT", ""),
        store=environ.get("TUSSOCK_STORE", ""),
        program=environ.get("TUSSOCK_PROGRAM", ""),
        program_sha256=environ.get("TUSSOCK_PROGRAM_SHA256", ""),
        event_log=environ.get("TUSSOCK_EVENT_LOG", ""),
        event_log_count=int(environ.get("TUSSOCK_EVENT_LOG_COUNT", base.event_log_count)),
        event_log_bytes=int(environ.get("TUSSOCK_EVENT_LOG_BYTES", base.event_log_bytes)),
        host=environ.get("POD_IP", ""),
        pod=environ.get("POD_NAME", ""),
    )


def submit_arguments(settings: Settings, executors: int | None, events: str = "") -> str:
    """What PySpark passes to `spark-submit` when the application makes its session; `events` is for its event log."""
    words = ["--properties-file", settings.conf] if settings.conf else []
    # These are not in the file because they differ in each pod and at each start.
    if settings.host:
        # An IPv6 address is written as in a URL.
        words += ["--conf", f"spark.driver.host={f'[{settings.host}]' if ':' in settings.host else settings.host}"]
    if settings.pod:
        words += ["--conf", f"spark.kubernetes.driver.pod.name={settings.pod}"]
    if events:
        words += ["--conf", f"spark.eventLog.dir={Path(events).as_uri()}"]
    if executors is not None:
        # spark-submit refuses 0; the first pass of the watch removes this one again.
        words += ["--conf", f"spark.executor.instances={max(1, executors)}"]
    return " ".join([*words, "pyspark-shell"])


def run(arguments: Sequence[str], environ: MutableMapping[str, str], system: System) -> NoReturn:
    """Run the application that `arguments` name, with its arguments, and end the process."""
    start_logging("info", "json", sys.stderr)
    # At lower levels it logs each call between Python and the JVM.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    if not arguments:
        sys.exit("usage: python -m tussock.compute.driver FILE [ARGUMENTS]")
    settings = settings_from(environ)
    executors = first_number(wanted_executors(settings.executors_file))
    disk = DiskWatch(Path(settings.checkpoint), system) if settings.checkpoint else None
    scaler = Scaler(settings.executors_file, executors and max(1, executors))
    watch = Watch(scaler, system, is_stream=settings.is_stream, disk=disk)
    if disk is not None:
        system.spawn("disk", disk.run)
    server = serve_status(watch, "", settings.status_port)
    system.spawn("status", server.serve_forever)
    system.spawn("watch", watch.run)
    ended, told = threading.Event(), threading.Event()

    def on_sigterm(*_: object) -> None:
        if told.is_set():
            return
        told.set()
        system.spawn("drain", lambda: _drain(watch, ended, settings.drain_seconds, system))
        if not watch.has_seen_spark and running_context() is None:
            # There is nothing to drain, and what starts now has to be stopped again: some 20 s for nothing. The handler
            # runs in the application's own thread, so the application ends where it is.
            raise SystemExit(DRAINED)

    signal.signal(signal.SIGTERM, on_sigterm)
    log.info("starting", application=arguments[0], executors=executors, mode_is_stream=settings.is_stream)
    # Each driver makes its own; the operator's status reports what the driver before has committed.
    with _scratch("commits") as notes, _scratch("events") as events, _scratch("program") as programs:
        environ[NOTES_FOLDER] = notes
        environ["PYSPARK_SUBMIT_ARGS"] = submit_arguments(settings, executors, events if settings.event_log else "")
        event_log = _event_log(settings, events, system)
        if event_log is not None:
            system.spawn("event-log", event_log.run)
        code = _run_application(arguments, settings, told, watch, Path(programs))
        ended.set()
        _stop_spark()
        _note_last_commit(settings, code)
        if event_log is not None:
            event_log.finish()
    log.info("ended", code=DRAINED if told.is_set() else code)
    sys.exit(DRAINED if told.is_set() else code)


def _scratch(what: str) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix=f"tussock-{what}-", ignore_cleanup_errors=True)


def _open_bucket(settings: Settings) -> ObjectStore:
    """The store's bucket, as the job's session may use it."""
    return connect(settings.store).delta("tussock-driver").bucket


def _event_log(settings: Settings, folder: str, system: System) -> EventLog | None:
    """What takes Spark's event log to the store's bucket, if the job has one."""
    if not settings.event_log:
        return None
    bounds = {"logs_max": settings.event_log_count, "bytes_max": settings.event_log_bytes}
    return EventLog(
        Path(folder), f"applications/{settings.event_log}/events/", lambda: _open_bucket(settings), system, **bounds
    )


def _run_application(
    arguments: Sequence[str], settings: Settings, told: threading.Event, watch: Watch, folder: Path
) -> int:
    """Run the program in this process, and return its exit code; one of the bucket is brought into `folder`."""
    try:
        file = Path(arguments[0]).absolute()
        if settings.program:
            file = fetch_program(lambda: _open_bucket(settings), settings.program, settings.program_sha256, folder)
        watch.program_sha256 = digest_of(file)
        # As with `python FILE`: modules beside the file are importable.
        sys.argv = [str(file), *arguments[1:]]
        sys.path.insert(0, str(file.parent))
        runpy.run_path(str(file), run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
            if settings.termination_file and not told.is_set():
                Path(settings.termination_file).write_text(cause_of(end), encoding="utf-8")
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        if not told.is_set():
            log.error("the application failed", exc_info=True)
            if settings.termination_file:
                Path(settings.termination_file).write_text(termination_message(error), encoding="utf-8")
        return OUTAGE if is_outage(cause_of(error)) else 1
    return 0


def _note_last_commit(settings: Settings, code: int) -> None:
    """Add the newest commit to what the pod leaves in its status: the operator asks, and may miss it."""
    commit = latest_commit()
    if not settings.termination_file or commit is None:
        return
    path = Path(settings.termination_file)
    # Without any message the kubelet takes the end of the log, which says more about a failure than this does.
    if code and not (path.exists() and path.stat().st_size):
        return
    with path.open("a", encoding="utf-8") as file:
        file.write(committed_line(commit))


def _drain(watch: Watch, ended: threading.Event, seconds: float, system: System) -> None:
    """Stop streams, then the application, then the process: each gets what the step before has left of the time."""
    deadline = system.monotonic() + seconds
    log.info("draining", seconds=seconds)
    watch.drain()
    try:
        stop_queries(active_queries(), seconds / 2, system)
    except SPARK_GONE as error:
        log.info("Spark has stopped by itself", error=type(error).__name__)
    if not ended.wait(min(_REST_SECONDS, max(0.0, deadline - system.monotonic()))):
        # A batch job, or a program that continues after its streams: its next request to Spark fails.
        _stop_spark()
    if not ended.wait(max(0.0, deadline - system.monotonic())):
        log.warning("the application has not ended in time, ending the process", seconds=seconds)
        sys.stderr.flush()
        os._exit(DRAINED)


def _stop_spark() -> None:
    """Let Spark stop its executors, if it runs."""
    context = running_context()
    if context is not None:
        try:
            context.stop()
        except SPARK_GONE as error:
            log.info("Spark has stopped by itself", error=type(error).__name__)
