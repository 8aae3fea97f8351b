"""Backups by their objects: a real API server, the operator, and the pod of a meta node as a process.

The store is on a volume with TLS of the operator's making, so the certificate that it shows and the role that this has
are real, too. Only names of hosts are a proxy's.
"""

import base64
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cluster.binaries import search_path
from support.buckets.minio import free_port
from support.network.proxies import ClusterProxy
from support.operator.containers import ContainerProcess, mounted_files
from support.operator.process import Body, Objects, OperatorProcess, eventually
from support.service.meta_process import ServiceProcess
from tussock.operator.planning.backup import backup_id, backup_name
from tussock.operator.plugin.meta_nodes.access import meta_node
from tussock.operator.plugin.meta_nodes.compaction import compact
from tussock.operator.probes.backups import NewBackup, tend
from tussock.operator.probes.platform import Certificates
from tussock.operator.resources.backup import parse_backup
from tussock.statestore import connect
from tussock.statestore.base.system import RealSystem
from tussock.statestore.errors import TableNotFound, WaitTimeout

HOST = "127.0.0.1"
SERVER_NAME = "shop-meta.backups.svc"


class Shop:
    """The store `shop`, whose meta node runs as the operator's Deployment specifies."""

    def __init__(self, objects: Objects, operator: OperatorProcess, proxy: ClusterProxy, folder: Path) -> None:
        self.objects = objects
        self.operator = operator
        self.folder = folder
        self.port, http = free_port(), free_port()
        proxy.services[f"{SERVER_NAME}:7370"] = f"{HOST}:{self.port}"
        self.names = {
            "0.0.0.0:7370": f"{HOST}:{self.port}",
            "0.0.0.0:7371": f"{HOST}:{http}",
            ":7370": f":{self.port}",
            "/etc/tussock": str(folder / "etc/tussock"),
            "/var/lib/tussock/store": str(folder / "store"),
            "/tmp": str(folder / "tmp"),
        }

    def create(self) -> None:
        spec = {"objectStore": {"volume": {"size": "1Gi"}}, "meta": {"config": {"leader": {"lease_seconds": 2}}}}
        self.objects.apply({**kind("StateStore", "shop"), "spec": spec})
        eventually("the meta node's Deployment", lambda: self.objects.get("Deployment", "shop-meta"))

    def run(self) -> ContainerProcess:
        template = self.objects.get("Deployment", "shop-meta")["spec"]["template"]  # type: ignore[index]
        sources = {"shop-meta": self.objects.get("ConfigMap", "shop-meta")["data"], "shop-meta-tls": self.files("meta")}  # type: ignore[index]
        mounted_files(template, self.folder, sources, self.names)
        return ContainerProcess(template, {"status.podIP": HOST}, self.names)

    def files(self, identity: str) -> dict[str, str]:
        secret = eventually(f"certificate {identity}", lambda: self.objects.get("Secret", f"shop-{identity}-tls"))
        return {name: base64.b64decode(text).decode() for name, text in secret["data"].items()}

    def certificates(self, identity: str) -> Certificates:
        files = self.files(identity)
        return Certificates(*(files[name].encode() for name in ("ca.crt", "tls.crt", "tls.key")))

    def client(self) -> Any:
        folder = self.folder / "writer"
        folder.mkdir(exist_ok=True)
        for file, text in self.files("client-writer").items():
            (folder / file).write_text(text)
        shown = {"tls_ca": folder / "ca.crt", "tls_cert": folder / "tls.crt", "tls_key": folder / "tls.key"}
        options = {name: str(file) for name, file in shown.items()}
        return connect(f"tussock://{HOST}:{self.port}", tls_server_name=SERVER_NAME, **options)

    def write(self, value: bytes) -> int:
        """Commit one more epoch; returns its number."""
        with self.client() as store:
            table = store.table("kv")
            epoch = store.new_epoch()
            table.ingest_batch([(b"k", value)], epoch)
            store.commit_epoch(epoch)
            return int(epoch)

    def backups(self) -> dict[str, Any]:
        with self.client() as store:
            return {found.name: found for found in store.backups()}

    def status(self, name: str) -> dict[str, Any]:
        return dict((self.objects.get("StateStoreBackup", name) or {}).get("status", {}))


def kind(name: str, called: str) -> Body:
    return {"apiVersion": "tussock.dev/v1alpha1", "kind": name, "metadata": {"name": called}}


def backup_of_shop(name: str, **spec: Any) -> Body:
    return {**kind("StateStoreBackup", name), "spec": {"storeRef": {"name": "shop"}, **spec}}


@pytest.fixture(scope="module")
def shop(definitions: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """The store, its meta node and its operator, with one epoch."""
    objects = Objects(definitions, "backups")
    objects.make_namespace()
    folder = tmp_path_factory.mktemp("backups")
    with ClusterProxy() as proxy:
        operator = OperatorProcess(definitions, folder, "backups", lease="backups", environment=proxy.environment)
        found = Shop(objects, operator, proxy, folder)
        operator.start()
        try:
            found.create()
            with found.run() as meta:
                meta.wait_for(event="leading")
                objects.serve("Deployment", "shop-meta")
                objects.await_reason("StateStore", "shop", "Ready")
                with found.client() as store:
                    store.create_table("kv")
                yield found
        finally:
            code = operator.stop()
        assert code == 0, operator.log()[-2000:]
        assert "Traceback" not in operator.log(), operator.log()[-4000:]


def test_a_backup_is_made_listed_and_deleted_with_its_object(shop: Shop) -> None:
    """It has the name in the status; the store's other backups stay."""
    epoch = shop.write(b"one")
    tend(f"{HOST}:{shop.port}", shop.certificates("client-admin"), SERVER_NAME, [NewBackup("mine", "0" * 32, "")])
    shop.objects.apply(backup_of_shop("once", comment="before the migration", deletionPolicy="Delete"))
    assert shop.objects.await_reason("StateStoreBackup", "once", "Completed")["status"] == "True"
    status = shop.status("once")
    made = shop.backups()[status["backupName"]]
    assert (made.comment, made.epoch, made.bytes) == ("before the migration", epoch, status["bytes"])
    assert (status["epoch"], status["count"]) == (epoch, 1)
    assert [found["name"] for found in status["backups"]] == [made.name]
    # Events are sent after the status.
    eventually("its event", lambda: [event["reason"] for event in shop.objects.events("once")][-1:] == ["Completed"])
    shop.objects.delete("StateStoreBackup", "once")
    eventually("the object gone", lambda: shop.objects.get("StateStoreBackup", "once") is None)
    assert made.name not in shop.backups()
    assert "mine" in shop.backups()


@pytest.mark.slow
def test_a_schedule_makes_backups_and_deletes_old_ones(shop: Shop) -> None:
    """Of three earlier backups retention leaves two; the next minute adds one and deletes one."""
    spec = {"schedule": "* * * * *", "retention": {"count": 2}, "deletionPolicy": "Delete"}
    shop.objects.apply(backup_of_shop("hourly", **spec, suspend=True))
    shop.objects.await_reason("StateStoreBackup", "hourly", "Suspended")
    body = shop.objects.get("StateStoreBackup", "hourly")
    assert body is not None
    backup = parse_backup(body)
    names = [backup_name(backup, datetime.now(UTC) - timedelta(hours=hours)) for hours in (3, 2, 1)]
    for name in names:
        wanted = NewBackup(name, backup_id(backup, name), "")
        made = tend(f"{HOST}:{shop.port}", shop.certificates("client-admin"), SERVER_NAME, [wanted])
        assert made.problem == ""
    shop.objects.apply(backup_of_shop("hourly", **spec))

    def own() -> list[str]:
        return sorted(name for name in shop.backups() if name.startswith("hourly-"))

    eventually("the oldest gone", lambda: names[0] not in own(), 90)
    eventually("one of this minute", lambda: set(own()) - set(names), 90)

    def two_are_told() -> bool:
        found = own()
        return len(found) == 2 and [told["name"] for told in shop.status("hourly")["backups"]] == found[::-1]

    # Not at the end of each minute, when there are three for a moment.
    eventually("two, and in the status", two_are_told)
    assert shop.status("hourly")["lastScheduleTime"] < shop.status("hourly")["nextScheduleTime"]
    shop.objects.delete("StateStoreBackup", "hourly")
    eventually("the object gone", lambda: shop.objects.get("StateStoreBackup", "hourly") is None)
    assert own() == []


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["asked", "made"])
def test_an_operator_that_is_killed_makes_no_second_backup(moment: str, shop: Shop) -> None:
    """`kill -9` when the object exists, or when the store has its backup and the status does not say so yet."""
    name = f"killed-{moment}"
    shop.objects.apply(backup_of_shop(name))
    if moment == "made":
        eventually("the backup", lambda: [found for found in shop.backups() if found.startswith(name)])
    else:
        finalizers = eventually(
            "the operator's look", lambda: shop.objects.get("StateStoreBackup", name)["metadata"].get("finalizers")
        )  # type: ignore[index]
        assert finalizers == ["tussock.dev/cleanup"]
    shop.operator.kill()
    shop.operator.start()
    shop.objects.await_reason("StateStoreBackup", name, "Completed", 60)
    assert [found for found in shop.backups() if found.startswith(name)] == [shop.status(name)["backupName"]]


def test_a_backup_that_is_asked_for_twice_is_made_once(shop: Shop) -> None:
    """Like an operator that died before the answer came; later epochs are not in the backup."""
    wanted = NewBackup("twice", "2" * 32, "")
    place = (f"{HOST}:{shop.port}", shop.certificates("client-admin"), SERVER_NAME)
    first = tend(*place, [wanted])
    shop.write(b"between")
    again = tend(*place, [wanted])
    assert first.problem == again.problem == ""
    assert [found for found in first.backups or () if found.name == "twice"] == [
        found for found in again.backups or () if found.name == "twice"
    ]
    assert tend(*place, drop=["twice", "twice"]).problem == ""


def test_only_the_certificate_of_an_admin_may_make_a_backup(shop: Shop) -> None:
    """The meta service checks the role; the list is still answered, and the problem says what is missing."""
    place = (f"{HOST}:{shop.port}", shop.certificates("client-writer"), SERVER_NAME)
    found = tend(*place, [NewBackup("refused", "3" * 32, "")])
    assert "admin" in found.problem
    assert found.backups is not None
    assert "refused" not in shop.backups()


def test_a_new_store_begins_with_a_backup(shop: Shop, tmp_path: Path) -> None:
    """Its pod copies the backup, and only then meta nodes start; later rows are not in the copy."""
    shop.write(b"kept")
    shop.objects.apply(backup_of_shop("first"))
    shop.objects.await_reason("StateStoreBackup", "first", "Completed")
    shop.write(b"later")
    spec = {"objectStore": {"volume": {"size": "1Gi"}}, "restoreFrom": {"backup": "first"}, "meta": {}}
    shop.objects.apply({**kind("StateStore", "copy"), "spec": spec})
    pod = eventually("the pod", lambda: shop.objects.get("Pod", "copy-restore"))
    assert shop.objects.await_reason("StateStore", "copy", "Restoring")["status"] == "False"
    names = {
        "/var/lib/tussock/source": str(shop.folder / "store"),
        "/var/lib/tussock/store": str(tmp_path / "copy"),
        "/tmp": str(tmp_path),
    }
    with ContainerProcess(pod, {}, names) as process:
        assert process.wait() == 0, "\n".join(process.raw)
    assert shop.objects.get("Meta", "copy") is None
    shop.objects.patch("Pod", "copy-restore", {"status": {"phase": "Succeeded"}}, "status")
    eventually("the meta nodes", lambda: shop.objects.get("Deployment", "copy-meta"))
    body = shop.objects.get("StateStore", "copy")
    assert body is not None
    assert body["status"]["restoredFrom"] == shop.status("first")["backupName"]
    eventually(
        "the pod gone", lambda: (shop.objects.get("Pod", "copy-restore") or DELETED)["metadata"]["deletionTimestamp"]
    )
    with connect((tmp_path / "copy").as_uri(), compaction=False) as store:
        assert store.table("kv").get(b"k") == b"kept"
    shop.objects.delete("StateStore", "copy")


def test_a_copy_in_another_bucket_is_made_read_and_restored(shop: Shop, tmp_path: Path) -> None:
    """The pod copies the backup and reads the copy; another store begins with it, without anything of the first."""
    shop.write(b"copied")
    destination = {"gcs": {"bucket": "elsewhere", "prefix": "shop"}}
    shop.objects.apply(backup_of_shop("far", destination=destination, verify=True))
    pod = eventually("the pod", lambda: shop.objects.get("Pod", "far-backup"))
    assert shop.objects.await_reason("StateStoreBackup", "far", "Running")["status"] == "False"
    names = {
        "gs://elsewhere/shop": (tmp_path / "elsewhere").as_uri(),
        "/var/lib/tussock/source": str(shop.folder / "store"),
        "/tmp": str(tmp_path),
    }
    with ContainerProcess(pod, {}, names) as process:
        assert process.wait() == 0, "\n".join(process.raw)
    shop.objects.patch("Pod", "far-backup", {"status": {"phase": "Succeeded"}}, "status")
    assert shop.objects.await_reason("StateStoreBackup", "far", "Completed")["status"] == "True"
    eventually(
        "the pod gone", lambda: (shop.objects.get("Pod", "far-backup") or DELETED)["metadata"].get("deletionTimestamp")
    )
    status = shop.status("far")
    assert (status["destination"], status["copies"]) == ("gs://elsewhere/shop", 1)
    assert status["backups"][0]["copied"] is True
    assert status["backups"][0]["verifyTime"] == status["lastVerifyTime"]
    eventually("the settings gone", lambda: shop.objects.get("ConfigMap", "far-backup") is None)
    restore_from = {"backupName": status["backupName"], "objectStore": destination}
    spec = {"objectStore": {"volume": {"size": "1Gi"}}, "restoreFrom": restore_from, "meta": {}}
    shop.objects.apply({**kind("StateStore", "again"), "spec": spec})
    pod = eventually("the pod", lambda: shop.objects.get("Pod", "again-restore"))
    there = {**names, "/var/lib/tussock/store": str(tmp_path / "again")}
    del there["/var/lib/tussock/source"]
    with ContainerProcess(pod, {}, there) as process:
        assert process.wait() == 0, "\n".join(process.raw)
    with connect((tmp_path / "again").as_uri(), compaction=False) as store:
        assert store.table("kv").get(b"k") == b"copied"
    shop.objects.delete("StateStore", "again")


def test_a_clone_begins_by_its_pod(shop: Shop, tmp_path: Path) -> None:
    """Two stores in one bucket: the second reads rows of the first, and its status says of what it is a clone."""
    bucket = {"bucket": "clones"}
    first = {"objectStore": {"gcs": {**bucket, "prefix": "one"}}}
    shop.objects.apply({**kind("StateStore", "one"), "spec": first})
    spec = {"objectStore": {"gcs": {**bucket, "prefix": "two"}}, "cloneFrom": {"store": "one"}, "meta": {}}
    shop.objects.apply({**kind("StateStore", "two"), "spec": spec})
    with connect((tmp_path / "one").as_uri(), compaction=False) as store:
        kv = store.create_table("kv")
        epoch = store.new_epoch()
        kv.ingest_batch([(b"k", b"cloned")], epoch)
        store.commit_epoch(epoch)
    pod = eventually("the pod", lambda: shop.objects.get("Pod", "two-restore"))
    names = {f"gs://clones/{name}": (tmp_path / name).as_uri() for name in ("one", "two")} | {"/tmp": str(tmp_path)}
    with ContainerProcess(pod, {}, names) as process:
        assert process.wait() == 0, "\n".join(process.raw)
    assert shop.objects.get("Meta", "two") is None
    shop.objects.patch("Pod", "two-restore", {"status": {"phase": "Succeeded"}}, "status")
    eventually("the meta nodes", lambda: shop.objects.get("Deployment", "two-meta"))
    body = shop.objects.get("StateStore", "two")
    assert body is not None
    assert body["status"]["clonedFrom"] == "one"
    with connect((tmp_path / "two").as_uri(), compaction=False) as store:
        assert store.table("kv").get(b"k") == b"cloned"
    for name in ("two", "one"):
        shop.objects.delete("StateStore", name)


DELETED = {"metadata": {"deletionTimestamp": "now"}}


def test_a_failed_backup_is_reported_and_tried_again(shop: Shop) -> None:
    """A foreign backup has the name; the condition says so until the name is free."""
    body = shop.objects.apply(backup_of_shop("taken", suspend=True))
    name = backup_name(parse_backup(body), None)
    place = (f"{HOST}:{shop.port}", shop.certificates("client-admin"), SERVER_NAME)
    assert tend(*place, [NewBackup(name, "4" * 32, "")]).problem == ""
    shop.objects.apply(backup_of_shop("taken"))
    found = shop.objects.await_reason("StateStoreBackup", "taken", "BackupFailed")
    assert name in found["message"]
    assert shop.objects.condition("StateStoreBackup", "taken", "Degraded")["status"] == "True"
    tend(*place, drop=[name])
    assert shop.objects.await_reason("StateStoreBackup", "taken", "Completed", 40)["status"] == "True"


def plugin(shop: Shop, *arguments: str, namespace: str = "") -> tuple[int, str, str]:
    """Exit code, output and errors of `kubectl tussock`, in the namespace of the store."""
    options = ("--namespace", namespace or shop.objects.namespace, "--kubeconfig", str(shop.objects.kubeconfig))
    ran = subprocess.run(
        [sys.executable, "-m", "tussock.operator.plugin", *arguments, *options],
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
        env={**os.environ, "PATH": search_path()},
    )
    return ran.returncode, ran.stdout, ran.stderr


def test_the_plugin_makes_a_backup_and_shows_the_status(shop: Shop) -> None:
    """It uses only the objects: problems, the committed epoch, and the backups; errors are one line."""
    epoch = shop.write(b"plugin")
    code, out, error = plugin(shop, "backup", "shop", "by-hand", "--comment", "for a look")
    assert (code, error) == (0, "")
    name = shop.status("by-hand")["backupName"]
    assert out == f"Backup {name} of shop holds epoch {epoch}.\n"
    assert shop.backups()[name].comment == "for a look"
    code, out, _ = plugin(shop, "status", "shop")
    lines = out.splitlines()
    assert code == 0
    assert lines[0].split() == ["KIND", "NAME", "READY", "REASON", "PODS", "COMMITTED", "MESSAGE"]
    assert lines[1].split()[:4] == ["StateStore", "shop", "True", "Ready"]
    assert any(line.split()[:4] == ["StateStoreBackup", "by-hand", "True", "Completed"] for line in lines)
    code, out, error = plugin(shop, "status", namespace="nothere")
    assert (code, out) == (1, "")
    assert "there is no StateStore in namespace nothere" in error
    code, out, _ = plugin(shop, "epochs", "shop")
    assert [line.split()[2] for line in out.splitlines() if name in line] == [str(epoch)]
    for arguments in (("status", "nowhere"), ("backup", "shop", "by-hand"), ("compact", "nowhere", "kv")):
        code, out, error = plugin(shop, *arguments)
        assert (code, out, error.count("\n")) == (1, "", 1)
        assert error.startswith("error: ")


def test_the_plugin_compacts_with_the_leader(shop: Shop) -> None:
    """It has the certificate of an admin, waits for the compactors, and reports their absence."""
    place = (f"{HOST}:{shop.port}", SERVER_NAME, shop.certificates("client-admin"))
    shop.write(b"compacted")
    shop.write(b"twice")
    with meta_node(*place) as leader, pytest.raises(WaitTimeout, match="connected compactors: 0"):
        compact(leader, "kv", 0.2, RealSystem())
    folder = shop.folder / "compactor"
    folder.mkdir()
    for file, text in shop.files("compactor").items():
        (folder / file).write_text(text)
    shown = {"CA": "ca.crt", "CERT": "tls.crt", "KEY": "tls.key"}
    environment = {f"TUSSOCK_TLS_{name}": str(folder / file) for name, file in shown.items()}
    environment["TUSSOCK_TLS_SERVER_NAME"] = SERVER_NAME
    arguments = ("--meta", f"{HOST}:{shop.port}", "--name", "one")
    with ServiceProcess("compactor", *arguments, environment=environment) as compactor:
        compactor.wait_for(event="compacting")
        with meta_node(*place) as leader:
            compact(leader, "kv", 60, RealSystem())
    with meta_node(*place) as leader, pytest.raises(TableNotFound):
        compact(leader, "none", 5, RealSystem())
