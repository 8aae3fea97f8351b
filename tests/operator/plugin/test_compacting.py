"""`kubectl tussock compact`: with the certificate of an admin, at the pod that leads."""

from pathlib import Path

import pytest

from support.operator.plugin.commands import plugin
from support.operator.plugin.encrypted_store import encrypted_store
from support.operator.process import Objects
from support.service.meta_process import ServiceProcess
from tussock.operator.manifests.transport_security import server_name
from tussock.statestore import connect

pytestmark = pytest.mark.timeout(240)


def test_what_the_leader_says_is_told(objects: Objects, tmp_path: Path) -> None:
    """That there are no compactors, that there is no such table, that it is done; and that nobody answers."""
    with encrypted_store(objects, tmp_path) as store:
        folder = tmp_path / "secrets" / "s-client-writer-tls"
        shown = {f"tls_{part}": str(folder / file) for part, file in _FILES.items()}
        with connect(store.meta.url, **shown, tls_server_name=server_name(store.resource)) as opened:
            kv = opened.create_table("kv")
            for batch in range(2):
                epoch = opened.new_epoch()
                kv.ingest_batch([(b"a", b"%d" % batch)], epoch)
                opened.commit_epoch(epoch)
        told = plugin(objects, "compact", "s", "kv", "--timeout", "1", kubelets=store.kubelets)
        assert (told.returncode, told.stdout) == (1, "")
        assert told.stderr.startswith("error: table kv was not compacted within 1 s; connected compactors: 0. ")
        told = plugin(objects, "compact", "s", "none", kubelets=store.kubelets)
        assert told.returncode == 1
        assert told.stderr.startswith("error: table 'none' is not in the store"), told.stderr
        files = {part: str(tmp_path / "secrets" / "s-compactor-tls" / file) for part, file in _FILES.items()}
        shown = {f"TUSSOCK_TLS_{part.upper()}": file for part, file in files.items()}
        environment = {**shown, "TUSSOCK_TLS_SERVER_NAME": server_name(store.resource)}
        node = ("compactor", "--meta", store.meta.address, "--name", "one")
        with ServiceProcess(*node, environment=environment) as compactor:
            compactor.wait_for(event="compacting")
            told = plugin(objects, "compact", "s", "kv", kubelets=store.kubelets)
        assert (told.returncode, told.stdout, told.stderr) == (0, "Table kv of s is compacted.\n", "")
        store.kubelets.know()
        told = plugin(objects, "compact", "s", "kv", kubelets=store.kubelets)
        assert told.stderr.startswith("error: port 7370 of pod/s-meta-0 is not forwarded: unable to forward port")


_FILES = {"ca": "ca.crt", "cert": "tls.crt", "key": "tls.key"}
