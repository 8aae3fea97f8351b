"""`kubectl tussock env` and `console`: a real meta node with TLS, used from outside of its cluster."""

import http.client
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support.buckets.minio import free_port
from support.operator.plugin.commands import Kubelets, plugin, plugin_process
from support.operator.plugin.encrypted_store import EncryptedStore, encrypted_store, make_pod, make_store
from support.operator.process import Objects, eventually
from support.operator.stores_in_cluster import unprobed_store

pytestmark = pytest.mark.timeout(240)
USE = """
import os
from tussock.statestore import connect
with connect(os.environ["TUSSOCK_STORE"]) as store:
    try:
        store.create_table("kv")
    except Exception as error:
        print(type(error).__name__, len(store.tables()))
    else:
        print("created", len(store.tables()))
"""


@pytest.fixture
def store(objects: Objects, tmp_path: Path) -> Iterator[EncryptedStore]:
    with encrypted_store(objects, tmp_path) as found:
        yield found


def in_shell(text: str, command: str) -> str:
    """The output of a command in a shell that has read these exports."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TUSSOCK_")}
    shell = ["bash", "-ec", f"{text}\n{command}"]
    return subprocess.run(shell, capture_output=True, check=True, text=True, timeout=120, env=environment).stdout


@pytest.mark.parametrize(
    ("role", "does"), [("reader", "AccessDenied 0"), ("writer", "created 1"), ("admin", "created 1")]
)
def test_a_laptop_uses_the_store(objects: Objects, store: EncryptedStore, tmp_path: Path, role: str, does: str) -> None:
    """By what is printed and by the file, in a folder with a blank; the role is that of the certificate."""
    folder = tmp_path / "my store"
    told = plugin(objects, "env", "s", "-d", str(folder), "-a", store.meta.address, "-r", role)
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout == (folder / "env.sh").read_text()
    assert in_shell(told.stdout, f"{sys.executable} -c '{USE}'") == f"{does}\n"
    tussock = Path(sys.executable).with_name("tussock")
    found = json.loads(in_shell(f". '{folder / 'env.sh'}'", f"{tussock} status --json"))
    assert found["replica"]["role"] == "leader"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert {file.name for file in folder.iterdir()} == {"ca.crt", "tls.crt", "tls.key", "env.sh", ".tussock-env.json"}


def test_by_the_addresses_outside_nothing_is_forwarded(objects: Objects, store: EncryptedStore, tmp_path: Path) -> None:
    """All of them are in the variables, by which a program then opens the store, without a word about ports."""
    endpoint = f"tussock://127.0.0.1:1,{store.meta.address}"
    objects.patch("StateStore", "s", {"status": {"outsideEndpoint": endpoint}}, "status")
    told = plugin(objects, "env", "s", "-d", str(tmp_path / "f"), "--outside", "-r", "writer")
    assert (told.returncode, told.stderr) == (0, "")
    assert f"export TUSSOCK_STORE={endpoint}\n" in told.stdout
    assert in_shell(told.stdout, f"{sys.executable} -c '{USE}'") == "created 1\n"


@pytest.mark.parametrize("endpoint", [None, "tussock://", "tussock://a:7370,$(x):1", "tussock://a"])
def test_no_address_outside_is_said(objects: Objects, tmp_path: Path, endpoint: str | None) -> None:
    """Also if a status has something else, which a shell would run."""
    objects.apply(unprobed_store("s"))
    objects.patch("StateStore", "s", {"status": {"outsideEndpoint": endpoint}}, "status")
    told = plugin(objects, "env", "s", "--outside", folder=tmp_path)
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr.startswith("error: StateStore s has no address outside of the cluster: give it meta.outside")


def test_its_own_files_are_replaced(objects: Objects, tmp_path: Path) -> None:
    """With another certificate, for the same store; a link in their place is replaced, and not what it leads to."""
    make_store(objects)
    folder, elsewhere = tmp_path / "f", tmp_path / "elsewhere"
    arguments = ("env", "s", "-d", str(folder), "-a", "127.0.0.1:1")
    assert plugin(objects, *arguments).returncode == 0
    first = (folder / "tls.crt").read_bytes()
    elsewhere.write_text("mine")
    (folder / "tls.key").unlink()
    (folder / "tls.key").symlink_to(elsewhere)
    assert plugin(objects, *arguments, "-r", "writer").returncode == 0
    assert (folder / "tls.crt").read_bytes() != first
    assert elsewhere.read_text() == "mine"
    assert not (folder / "tls.key").is_symlink()


@pytest.mark.parametrize("name", ["ca.crt", "tls.crt", "tls.key", "env.sh", ".tussock-env.json"])
@pytest.mark.parametrize("how", ["file", "link", "folder"])
def test_nothing_of_others_is_overwritten(objects: Objects, tmp_path: Path, name: str, how: str) -> None:
    """Not even by a folder that the user has named; the other files are not written either."""
    make_store(objects)
    folder = tmp_path / "f"
    folder.mkdir()
    there = folder / name
    if how == "file":
        there.write_text("mine")
    elif how == "link":
        there.symlink_to(tmp_path / "nowhere")
    else:
        there.mkdir()
    told = plugin(objects, "env", "s", "-d", str(folder), "-a", "127.0.0.1:1")
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr.startswith(f"error: {there}"), told.stderr
    assert len(told.stderr.splitlines()) == 1
    assert [file.name for file in folder.iterdir()] == [name]
    assert how != "file" or there.read_text() == "mine"


def test_a_folder_of_another_store_is_left_alone(objects: Objects, tmp_path: Path) -> None:
    """A store of the same name elsewhere is another one: its key is not replaced by this one's without a word."""
    make_store(objects)
    folder = tmp_path / "f"
    objects.apply(unprobed_store("t"))
    assert plugin(objects, "env", "t", "-d", str(folder), "-a", "127.0.0.1:1").returncode == 0
    told = plugin(objects, "env", "s", "-d", str(folder), "-a", "127.0.0.1:1")
    assert told.returncode == 1
    assert told.stderr.startswith(f"error: {folder} has the files of StateStore {objects.namespace}/t; name another")
    marker = folder / ".tussock-env.json"
    held = json.loads(marker.read_text())
    marker.write_text(json.dumps({**held, "store": "s"}))
    told = plugin(objects, "env", "s", "-d", str(folder), "-a", "127.0.0.1:1")
    assert "has the files of an earlier StateStore, or one of another cluster" in told.stderr


def test_without_tls_nothing_is_written(objects: Objects) -> None:
    """Two variables, and how to reach the pod that leads; a managed bucket has a name of the cluster, too."""
    objects.apply(unprobed_store("s", objectStore={"managed": {}}))
    objects.patch("StateStore", "s", {"status": {"leader": "s-meta-0"}}, "status")
    told, host = plugin(objects, "env", "s"), f"s-minio.{objects.namespace}.svc"
    reached = "a name of the cluster. So that this machine reaches it, keep running:"
    assert told.stdout == "export TUSSOCK_STORE=tussock://127.0.0.1:7370\nexport TUSSOCK_META=127.0.0.1:7370\n"
    assert told.stderr.splitlines() == [
        "Keep running, and again with the new leader when that changes:",
        f"  kubectl port-forward --namespace {objects.namespace} pod/s-meta-0 7370:7370",
        f"Rows are in the bucket at http://{host}:9000, {reached}",
        f"  kubectl port-forward --namespace {objects.namespace} service/s-minio 9000:9000",
        f"and have in /etc/hosts: 127.0.0.1 {host}",
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("t",), 1, "there is no StateStore t in namespace"),
        (("s", "-a", "nowhere"), 2, "Invalid value: --address 'nowhere' is no HOST:PORT"),
        (("s", "-a", "h:99999"), 2, "Invalid value: --address 'h:99999' is no HOST:PORT"),
        (("s", "-a", "$(x):1"), 2, "Invalid value: --address '$(x):1' is no HOST:PORT"),
        (("s", "-a", "h:1"), 2, "Invalid value: StateStore s uses TLS: name a folder for its certificate"),
        (("plain", "-a", "h:1", "-d", "/dev/null"), 1, "/dev/null: File exists"),
        (("plain", "-a", "h:1", "-d", "/proc/x/y"), 1, "/proc/x"),
        (("s", "-d", "/tmp/x"), 1, "StateStore s has no leader; see kubectl tussock status s"),
        (("s", "-a", "h:1", "-d", "f"), 1, 'Error from server (NotFound): secrets "s-client-reader-tls" not found'),
        (("s", "-a", "h:1", "--outside"), 2, "Invalid value: --address and --outside both say where the store is"),
        (("s", "-r", "compactor"), 2, "Invalid value for '--role'"),
    ],
)
def test_what_env_refuses(objects: Objects, tmp_path: Path, arguments: tuple[str, ...], code: int, words: str) -> None:
    """In one line; nothing is written."""
    objects.apply(unprobed_store("s", tls={"mode": "managed"}))
    objects.apply(unprobed_store("plain"))
    told = plugin(objects, "env", *arguments, folder=tmp_path)
    assert (told.returncode, told.stdout) == (code, "")
    assert told.stderr.startswith(f"error: {words}"), told.stderr
    assert len(told.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_secret_that_is_not_whole_is_said(objects: Objects, tmp_path: Path) -> None:
    objects.apply(unprobed_store("s", tls={"mode": "managed"}))
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s-client-reader-tls"}}
    objects.apply({**secret, "stringData": {"ca.crt": "x"}})
    told = plugin(objects, "env", "s", "-a", "h:1", "-d", "f", folder=tmp_path)
    assert told.returncode == 1
    assert told.stderr.startswith("error: Secret s-client-reader-tls does not hold ca.crt, tls.crt, tls.key")


def address_of(process: "subprocess.Popen[str]") -> str:
    """The address that the command prints once the console can be opened."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert process.stderr is not None
    assert line.startswith("The console of s, from pod s-meta-0, until Ctrl-C: http://127.0.0.1:"), (
        process.stderr.read()
    )
    return line.split()[-1]


def ask(address: str, path: str, method: str = "GET", **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    return connection.getresponse()


def test_the_console_of_a_store_with_tls(objects: Objects, store: EncryptedStore) -> None:
    """Page and status come through, by the key in the address and then by a cookie, and nothing without it."""
    with plugin_process(objects, "console", "s", "--no-browser", kubelets=store.kubelets) as process:
        address = address_of(process)
        asked = urlsplit(address)
        let_in = ask(address, f"/?{asked.query}")
        assert (let_in.status, let_in.getheader("Location")) == (303, "/")
        cookie = SimpleCookie(let_in.getheader("Set-Cookie"))
        [(name, held)] = cookie.items()
        assert (held["httponly"], held["samesite"]) == (True, "Strict")
        shown = f"{name}={held.value}"
        page = ask(address, "/", Cookie=shown)
        assert page.status == 200
        assert "default-src" in str(page.getheader("Content-Security-Policy"))
        assert page.getheader("Cross-Origin-Resource-Policy") == "same-origin"
        etag = str(page.getheader("ETag"))
        assert ask(address, "/", Cookie=shown, If_None_Match=etag).status == 304
        assert b"<html" in page.read().lower()
        status = json.loads(ask(address, "/api/status", Cookie=shown).read())
        assert status["replica"]["role"] == "leader"
        assert ask(address, "/api/status", "HEAD", Cookie=shown).status in (200, 405)
        for cookies in ({}, {"Cookie": f"{name}=wrong"}, {"Cookie": "=;;="}):
            assert ask(address, "/api/status", **cookies).status == 403
        assert ask(address, "/?key=wrong").status == 403
        assert ask(address, "/api/status", Cookie=shown, Host="evil.example").status == 403
        assert ask(address, "/api/status", "POST", Cookie=shown).status == 501
        store.meta.process.kill()
        store.meta.wait()
        assert ask(address, "/api/status", Cookie=shown).status == 502
    assert not store.kubelets.is_forwarding()
    assert process.returncode == 143


def test_ctrl_c_ends_the_console(objects: Objects, tmp_path: Path) -> None:
    """With the code of an interrupted command, and without a word; nothing runs on."""
    objects.apply(unprobed_store("s"))
    make_pod(objects, "s-meta-0", "10.1.0.0")
    kubelets = Kubelets(tmp_path)
    kubelets.know({"s-meta-0:7371": free_port()})
    with plugin_process(objects, "console", "s", kubelets=kubelets) as process:
        address_of(process)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
    assert (process.returncode, out, error) == (130, "", "")
    eventually("its end", lambda: not kubelets.is_forwarding())


def test_the_console_of_a_store_without_tls_is_forwarded_alone(objects: Objects, tmp_path: Path) -> None:
    """From another meta node that serves if the leader is not known; the end of the forwarding ends the command."""
    objects.apply(unprobed_store("s"))
    make_pod(objects, "s-meta-0", "10.1.0.0")
    kubelets, port = Kubelets(tmp_path), free_port()
    kubelets.know({"s-meta-0:7371": port})
    with plugin_process(objects, "console", "s", kubelets=kubelets) as process:
        assert address_of(process) == f"http://127.0.0.1:{port}/"
        os.kill(int((tmp_path / "forwarding").read_text()), 15)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert error.startswith("error: the way to pod s-meta-0 is lost: ")
    eventually("its end", lambda: not kubelets.is_forwarding())


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("t",), 1, "there is no StateStore t in namespace"),
        (("s",), 1, "no meta node of StateStore s serves; see kubectl tussock status s"),
        (("s", "--port", "70000"), 2, "Invalid value for '--port'"),
    ],
)
def test_what_the_console_refuses(
    objects: Objects, tmp_path: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    objects.apply(unprobed_store("s"))
    make_pod(objects, "s-meta-0", "10.1.0.0", ready=False)
    told = plugin(objects, "console", *arguments, kubelets=Kubelets(tmp_path))
    assert (told.returncode, told.stdout) == (code, "")
    assert told.stderr.startswith(f"error: {words}"), told.stderr
    assert len(told.stderr.splitlines()) == 1


def test_a_port_in_use_is_said(objects: Objects, store: EncryptedStore) -> None:
    port = store.meta.http.rpartition(":")[2]
    told = plugin(objects, "console", "s", "--port", port, kubelets=store.kubelets)
    assert told.returncode == 1
    assert told.stderr == f"error: port {port} of this machine cannot be used: Address already in use\n"
