"""Tokens, roles, TLS and client certificates of an application, as at a meta service."""

from pathlib import Path

import pytest

from support.applications.serve_process import ServeProcess
from support.network.certificates import Authority
from support.waiting import eventually
from tussock.compute import procedures as ps
from tussock.meta.node.auth.tokens import create_token
from tussock.statestore import AccessDenied, Unauthenticated
from tussock.statestore.base.system import RealSystem

SECONDS = 60


def tokens_in(folder: Path) -> tuple[dict[str, str], str]:
    """A token for each role, and the file."""
    made = {role: create_token(role, role, RealSystem()) for role in ("reader", "writer", "admin")}
    file = folder / "tokens"
    file.write_text("".join(line + "\n" for _, line in made.values()))
    return {role: secret for role, (secret, _) in made.items()}, str(file)


def test_tokens_and_roles(tmp_path: Path) -> None:
    """A reader looks, a writer submits, an admin pauses; a token that leaves the file is taken no more."""
    secrets, file = tokens_in(tmp_path)
    with ServeProcess((tmp_path / "store").as_uri(), "--tokens.file", file) as node:
        for token in (None, "tussock_wrong"):
            with ps.Client(node.address, token=token) as nobody, pytest.raises(Unauthenticated):
                nobody.stats()
        with ps.Client(node.address, token=secrets["reader"]) as reader:
            assert reader.stats()["records"] == 0
            assert reader.status()["state"] == "running"
            for ask in (
                lambda: reader.submit("take", [{"n": 1}]).result(SECONDS),
                lambda: reader.call("total"),
                reader.pause,
                reader.drain,
            ):
                with pytest.raises(AccessDenied):
                    ask()
        with ps.Client(node.address, token=secrets["writer"]) as writer:
            assert writer.submit("take", [{"n": 1}]).result(SECONDS) == 1
            with pytest.raises(AccessDenied):
                writer.pause()
        with ps.Client(node.address, token=secrets["admin"]) as admin:
            admin.pause()
            admin.resume()
        assert node.get("/status")[0] == 401
        assert node.get("/metrics")[0] == 401
        assert node.get("/status", secrets["reader"])[0] == 200
        assert [node.get(path)[0] for path in ("/", "/healthz", "/readyz")] == [200, 200, 200]
        with ps.Client(node.address, token=secrets["writer"]) as writer:
            writer.stats()
            lines = Path(file).read_text().splitlines()
            Path(file).write_text("".join(line + "\n" for line in lines if not line.startswith("writer")))

            def is_refused() -> bool:
                try:
                    writer.stats()
                except Unauthenticated:
                    return True
                return False

            # The conversation is open; the file is looked at each second.
            eventually(is_refused)
        log = "\n".join(node.raw)
    assert not any(secret in log for secret in secrets.values())


def test_tls_and_certificates(tmp_path: Path) -> None:
    """Only over TLS, only with a certificate of the CA, and with the role that it has."""
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    own, job, guest = authority.sign("node"), authority.sign("job"), authority.sign("guest")
    other = stranger.sign("other")
    files = ("--tls.certificate", own.certificate, "--tls.key", own.key, "--tls.client-ca", authority.certificate)
    arguments = (*map(str, files), "--tls.roles.writer", "CN:job", "--tls.roles.reader", "CN:guest")
    with ServeProcess((tmp_path / "store").as_uri(), *arguments) as node:
        shown = {"tls_ca": str(authority.certificate), "deadline": 3.0}
        with ps.Client(
            node.address, tls_cert=str(job.certificate), tls_key=str(job.key), tls_ca=str(authority.certificate)
        ) as client:
            assert client.submit("take", [{"n": 2}]).result(SECONDS) == 2
        with ps.Client(
            node.address, tls_cert=str(guest.certificate), tls_key=str(guest.key), tls_ca=str(authority.certificate)
        ) as client:
            assert client.stats()["records"] == 1
            with pytest.raises(AccessDenied):
                client.call("total", timeout=SECONDS)
        wrong = (
            {"deadline": 3.0},
            shown,
            {**shown, "tls_cert": str(other.certificate), "tls_key": str(other.key)},
            {**shown, "tls_ca": str(stranger.certificate)},
        )
        for options in wrong:
            with ps.Client(node.address, **options) as client, pytest.raises(ps.ServiceUnavailable):  # type: ignore[arg-type]
                client.stats()
