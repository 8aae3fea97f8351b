"""Jobs of one store at the meta service: each has its name, limits and log lines, and can be shut out alone.

The certificates are those that the operator issues.
"""

import base64
import time
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest

from support.operator.compute_cases import compute_with
from support.operator.resources import DEFAULTS, store_with
from support.service.meta_process import MetaProcess
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.methods import METHODS
from tussock.operator.certificates.renewal import renew_certificates, renew_own_certificate
from tussock.operator.manifests.certificates import desired_certificates, job_certificate
from tussock.operator.manifests.transport_security import role_patterns, server_name

PROTOCOL = ("tussock-protocol", "1")
STORE = store_with({"managed": {}})
CALLERS = {job: f"tussock://data/shop/writer/{job}" for job in ("totals", "alarms")}


def issue_secrets() -> dict[str, dict[str, bytes]]:
    """The files of all secrets, of the store and of two jobs."""
    now, wanted = datetime.now(UTC), desired_certificates(STORE, ("shop",), DEFAULTS)
    secrets = {found["metadata"]["name"]: found["data"] for found in renew_certificates(STORE, wanted, {}, now)}
    for job in CALLERS:
        compute = compute_with(job)
        found = renew_own_certificate(compute, STORE, job_certificate(compute, STORE), secrets, now)
        assert found is not None
        secrets[found["metadata"]["name"]] = found["data"]
    return {name: {file: base64.b64decode(text) for file, text in data.items()} for name, data in secrets.items()}


class Service:
    """A node with the store's certificate, and calls to it with each job's."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._secrets = issue_secrets()
        for file, content in self._secrets["shop-meta-tls"].items():
            (folder / file).write_bytes(content)
        roles = [
            part for role, names in role_patterns(STORE).items() for part in (f"--tls.roles.{role}", ",".join(names))
        ]
        files = ("--tls.certificate", "tls.crt", "--tls.key", "tls.key", "--tls.client-ca", "ca.crt")
        shown = [str(folder / part) if "." in part and not part.startswith("--") else part for part in files]
        self.process = MetaProcess((folder / "bucket").as_uri(), *shown, *roles, "--log.level", "debug", *arguments)
        self.process.wait_until_it_leads()

    def channel(self, job: str) -> grpc.Channel:
        """A connection with a job's certificate."""
        files = self._secrets[f"{job}-driver-tls"]
        credentials = grpc.ssl_channel_credentials(files["ca.crt"], files["tls.key"], files["tls.crt"])
        options = [("grpc.ssl_target_name_override", server_name(STORE))]
        return grpc.secure_channel(self.process.address, credentials, options)

    def call(self, job: str) -> tuple[grpc.StatusCode, str]:
        """Call as a job; returns the status and the message."""
        with self.channel(job) as channel:
            call = channel.unary_unary(METHODS["ListPins"].path).future(
                pb.ListPinsRequest().SerializeToString(), metadata=[PROTOCOL], timeout=60
            )
            return call.code(), str(call.details())


def test_each_job_has_its_own_limits_and_log_lines(tmp_path: Path) -> None:
    """A job that calls too often is slowed down and named, and another one on the same host is not."""
    service = Service(tmp_path, "--limits.calls-per-second", "0.01", "--limits.calls-burst", "3")
    with service.process as process:
        assert [service.call("totals")[0] for _ in range(3)] == [grpc.StatusCode.OK] * 3
        code, told = service.call("totals")
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert CALLERS["totals"] in told
        assert service.call("alarms")[0] == grpc.StatusCode.OK
        for caller in CALLERS.values():
            process.wait_for(event="call", caller=caller, code="OK")
        process.wait_for(caller=CALLERS["totals"], code="RESOURCE_EXHAUSTED")


@pytest.mark.parametrize("pattern", [f"URI:{CALLERS['totals']}", "CN:tussock-job-tot*"])
def test_one_job_can_be_shut_out_alone(tmp_path: Path, pattern: str) -> None:
    """Its certificate has not expired and is of the right CA; others are accepted as before."""
    service = Service(tmp_path, "--tls.revoked", pattern)
    with service.process:
        code, told = service.call("totals")
        assert code == grpc.StatusCode.UNAUTHENTICATED
        assert CALLERS["totals"] in told
        assert "tls.revoked" in told
        assert service.call("alarms")[0] == grpc.StatusCode.OK


def test_one_job_is_shut_out_of_a_running_service(tmp_path: Path) -> None:
    """With its session and its stream, within about two seconds; others go on."""
    file = tmp_path / "clients.toml"
    file.write_text("revoked = []\n")
    service = Service(tmp_path, "--clients.file", str(file))
    with service.process as process, service.channel("totals") as channel:
        session, metadata = "0123456789abcdef" * 2, [PROTOCOL]
        opening = pb.OpenSessionRequest(session_id=session, kind=pb.CLIENT, name="raw").SerializeToString()
        channel.unary_unary(METHODS["OpenSession"].path)(opening, metadata=metadata, timeout=60)
        asked = pb.SubscribeRequest(session_id=session).SerializeToString()
        stream = channel.unary_stream(METHODS["Subscribe"].path)(asked, metadata=metadata, timeout=60)
        began = time.monotonic()
        file.write_text(f'revoked = ["URI:{CALLERS["totals"]}"]\n')
        told = [pb.Event.FromString(event) for event in stream]
        assert time.monotonic() - began < 2.5
        assert f"{CALLERS['totals']!r} is revoked" in told[-1].closing.reason
        code, said = service.call("totals")
        assert code == grpc.StatusCode.UNAUTHENTICATED
        assert "`revoked` in the service's clients file" in said
        assert service.call("alarms")[0] == grpc.StatusCode.OK
        process.wait_for(event="session ended", caller=CALLERS["totals"])
