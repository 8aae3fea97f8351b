"""The right to join a program: tokens, roles, TLS."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from support.applications.work_process import ProgramProcess, WorkProcess
from support.network.certificates import Authority
from support.waiting import eventually
from tussock.compute import functions as fn
from tussock.meta.node.auth.tokens import create_token
from tussock.statestore.base.system import RealSystem

SECONDS = 60


def test_only_an_admins_token_makes_a_worker(tmp_path: Path) -> None:
    """Others end with the reason and learn nothing of the program; a token that is taken back ends its worker."""
    url = (tmp_path / "store").as_uri()
    made = {role: create_token(role, role, RealSystem()) for role in ("reader", "writer", "compactor", "admin")}
    tokens = tmp_path / "tokens"
    tokens.write_text("".join(line + "\n" for _, line in made.values()))
    files = {role: tmp_path / role for role in made}
    for role, file in files.items():
        file.write_text(made[role][0])
    with ExitStack() as stack:
        program = stack.enter_context(ProgramProcess(url, 1, "--tokens.file", str(tokens)))
        address = program.workers_address
        others = {
            role: stack.enter_context(WorkProcess(address, url, "--token-file", str(files[role])))
            for role in ("reader", "writer", "compactor")
        }
        nobody = stack.enter_context(WorkProcess(address, url))
        for role, worker in others.items():
            assert worker.wait() == 1
            assert worker.raw[-1] == f"error: {role!r} may not be a worker; that needs the role admin"
        assert nobody.wait() == 1
        for worker in (nobody, *others.values()):
            assert "bank" not in "\n".join(worker.raw)
            assert url not in "\n".join(worker.raw)
        admin = stack.enter_context(WorkProcess(address, url, "--token-file", str(files["admin"])))
        with fn.Client(program.address, token=made["writer"][0]) as client:
            assert client.send("account", "p0", "transfer", "p1", 30).result(SECONDS) == 70
            tokens.write_text("".join(line + "\n" for role, (_, line) in made.items() if role != "admin"))
            assert admin.wait() == 1
            eventually(lambda: client.status()["workers_joined"] == 0)
        told = "\n".join(line for one in (program, admin, *others.values()) for line in one.raw)
    assert not any(secret in told for secret, _ in made.values())


def test_workers_join_over_tls(tmp_path: Path) -> None:
    """With a certificate of the role; one without TLS, of another CA or of another role never joins."""
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    own, worker, guest = authority.sign("node"), authority.sign("worker"), authority.sign("guest")
    files = ("--tls.certificate", own.certificate, "--tls.key", own.key, "--tls.client-ca", authority.certificate)
    roles = ("--tls.roles.admin", "CN:worker", "--tls.roles.writer", "CN:guest")
    url = (tmp_path / "store").as_uri()

    def shown(pair: object, ca: Path) -> tuple[str, ...]:
        certificate, key = pair  # type: ignore[misc]
        return ("--tls-ca", str(ca), "--tls-cert", str(certificate), "--tls-key", str(key))

    with ExitStack() as stack:
        program = stack.enter_context(ProgramProcess(url, 1, *map(str, files), *roles))
        address = program.workers_address
        plain = stack.enter_context(WorkProcess(address, url))
        wrong = stack.enter_context(WorkProcess(address, url, *shown(worker, stranger.certificate)))
        other = stack.enter_context(WorkProcess(address, url, *shown(guest, authority.certificate)))
        assert other.wait() == 1
        assert "'guest' may not be a worker" in other.raw[-1]
        for one in (plain, wrong):
            assert "UNAVAILABLE" in one.wait_for(event="dialling again")["error"]
        stack.enter_context(WorkProcess(address, url, *shown(worker, authority.certificate))).wait_until_ready()
        assert program.address
        assert [one.process.poll() for one in (plain, wrong)] == [None, None]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param(("--workers-listen", "127.0.0.1:0"), "say how many are to join", id="no number"),
        pytest.param(("--workers-listen", "somewhere"), "workers_listen", id="no address"),
    ],
)
def test_settings_that_let_nobody_join(tmp_path: Path, arguments: tuple[str, str], told: str) -> None:
    """The command ends at once with code 2."""
    url = (tmp_path / "store").as_uri()
    with ProgramProcess(url, 0, *arguments) as program:
        assert program.wait() == 2
        assert told.replace("_", "-") in "\n".join(program.raw).replace("_", "-")
