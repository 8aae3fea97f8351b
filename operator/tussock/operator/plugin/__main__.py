"""The command `kubectl tussock`, which kubectl finds as `kubectl-tussock` on the PATH.

It needs only its user's rights, and reaches the cluster through kubectl alone. Everything comes from the objects'
statuses if possible; only `compact` opens a connection, forwarded to the leader's pod.
"""

import argparse
import base64
import sys
from collections.abc import Sequence

from tussock.operator.manifests.meta_config import GRPC_PORT
from tussock.operator.manifests.transport_security import has_tls, server_name, tls_secret
from tussock.operator.planning.words.model import Manifest
from tussock.operator.plugin.compaction import compact
from tussock.operator.plugin.kubectl import Kubectl, KubectlFailed
from tussock.operator.plugin.release import release
from tussock.operator.plugin.tables import epochs_text, status_text
from tussock.operator.probes.platform import Certificates
from tussock.operator.resources.common import API_VERSION, GROUP, InvalidResource
from tussock.operator.resources.store import StoreResource, parse_store
from tussock.statestore.base.system import RealSystem
from tussock.statestore.errors import TussockError

__all__ = ["main", "run"]

_PARTS = ("metas", "compactors", "computes", "statestorebackups")


def main() -> None:
    """Run the command line; after a failure, ends the process with 1 and a line that says why."""
    try:
        run(sys.argv[1:])
    except (KubectlFailed, TussockError, InvalidResource) as error:
        sys.exit(f"kubectl tussock: {error.args[0] if error.args else error}")


def run(arguments: Sequence[str]) -> None:
    """Carry out one command; raises `KubectlFailed`, or the platform's error."""
    given = _parser().parse_args(arguments)
    options = {"namespace": given.namespace, "context": given.context, "kubeconfig": given.kubeconfig}
    kubectl = Kubectl([f"--{name}={value}" for name, value in options.items() if value])
    match given.command:
        case "status":
            stores = [_store(kubectl, given.store)] if given.store else kubectl.objects(f"statestores.{GROUP}")
            if not stores:
                where = f"namespace {given.namespace}" if given.namespace else "the context's namespace"
                raise KubectlFailed(f"there is no StateStore in {where}; use --namespace to look in another one")
            sys.stdout.write(status_text(stores, _parts(kubectl)))
        case "epochs":
            parts = [part for part in _parts(kubectl) if part["spec"]["storeRef"]["name"] == given.store]
            sys.stdout.write(epochs_text(_store(kubectl, given.store), parts))
        case "compact":
            _compact(kubectl, given.store, given.table, given.timeout)
        case "backup":
            _backup(kubectl, given.store, given.name, given.comment, given.timeout)
        case "release":
            lines = release(kubectl, given.store or "", everywhere=given.all_namespaces)
            if given.store and not lines:
                raise KubectlFailed(
                    f"StateStore {given.store} has nothing to release: only deleted objects are released; use "
                    "--namespace to look in another namespace"
                )
            sys.stdout.write("\n".join([*lines, f"{len(lines)} objects were released.\n"]))
        case "logs":
            chosen = f"tussock.dev/store={given.store}"
            if given.component:
                chosen += f",app.kubernetes.io/component={given.component}"
            follow = ["--follow"] if given.follow else []
            kubectl.become(
                *("logs", f"--selector={chosen}", "--prefix", "--all-containers", "--max-log-requests=100"),
                *(f"--tail={given.tail}", *follow),
            )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kubectl tussock", description=__doc__.partition("\n")[0])
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("-n", "--namespace", help="of the store; the current one of the context if left out")
    common.add_argument("--context", help="of the kubeconfig")
    common.add_argument("--kubeconfig", help="path of the file")
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, told: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=told, description=told, parents=[common])

    command("status", "how a store and all its parts are").add_argument("store", nargs="?", help="all if left out")
    command("epochs", "what is committed, by which job, and what backups hold").add_argument("store")
    compacting = command("compact", "merge a table into one sorted run, and wait for it")
    compacting.add_argument("store")
    compacting.add_argument("table")
    backing = command("backup", "make a backup now, as a StateStoreBackup of that name, and wait for it")
    backing.add_argument("store")
    backing.add_argument("name")
    backing.add_argument("--comment", default="", help="for people")
    for waits in (compacting, backing):
        waits.add_argument("--timeout", type=int, default=300, metavar="SECONDS", help="300 if left out")
    releasing = command("release", "release deleted objects if no operator is left to clean up after them")
    releasing.add_argument("store", nargs="?", help="and its parts; all if left out")
    releasing.add_argument("-A", "--all-namespaces", action="store_true", help="in all namespaces")
    logs = command("logs", "the logs of all pods of a store")
    logs.add_argument("store")
    logs.add_argument("-c", "--component", choices=("meta", "compactor", "compute", "minio", "restore", "backup"))
    logs.add_argument("-f", "--follow", action="store_true", help="go on with what comes")
    logs.add_argument("--tail", type=int, default=100, help="lines of each pod; -1 for all")
    return parser


def _store(kubectl: Kubectl, name: str) -> Manifest:
    return kubectl.object(f"statestores.{GROUP}", name)


def _parts(kubectl: Kubectl) -> list[Manifest]:
    return [body for resource in _PARTS for body in kubectl.objects(f"{resource}.{GROUP}")]


def _backup(kubectl: Kubectl, store: str, name: str, comment: str, seconds: int) -> None:
    spec = {"storeRef": {"name": store}, **({"comment": comment} if comment else {})}
    kubectl.create({"apiVersion": API_VERSION, "kind": "StateStoreBackup", "metadata": {"name": name}, "spec": spec})
    resource = f"statestorebackups.{GROUP}"
    try:
        kubectl.run("wait", f"{resource}/{name}", "--for=condition=Ready", f"--timeout={seconds}s")
    except KubectlFailed as error:
        held = (kubectl.object(resource, name).get("status") or {}).get("conditions") or [{}]
        raise KubectlFailed(f"no backup yet: {held[0].get('message', error)}") from error
    made = kubectl.object(resource, name)["status"]
    sys.stdout.write(f"Backup {made['backupName']} of {store} holds epoch {made['epoch']}.\n")


def _compact(kubectl: Kubectl, name: str, table: str, seconds: int) -> None:
    body = _store(kubectl, name)
    leader = (body.get("status") or {}).get("leader", "")
    if not leader:
        raise KubectlFailed(f"StateStore {name} has no leader; see kubectl tussock status {name}")
    store = parse_store(body)
    certificates = _certificates(kubectl, store) if has_tls(store) else None
    with kubectl.forward(f"pod/{leader}", GRPC_PORT) as address:
        compact(address, certificates, server_name(store), table, seconds, RealSystem())
    sys.stdout.write(f"Table {table} of {name} is compacted.\n")


def _certificates(kubectl: Kubectl, store: StoreResource) -> Certificates:
    data = kubectl.object("secrets", tls_secret(store, "client-admin")).get("data") or {}
    return Certificates(*(base64.b64decode(data.get(file, "")) for file in ("ca.crt", "tls.crt", "tls.key")))


if __name__ == "__main__":
    main()
