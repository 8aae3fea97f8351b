"""A real Kubernetes API server for the tests of CRDs and handlers: etcd and kube-apiserver alone, in a few seconds.

It stores and validates objects, enforces RBAC and sends watches, and nothing else: no controller runs, so no
Deployment gets pods, no owner's deletion takes its children along, and a deleted namespace stays `Terminating`.
"""

import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.binaries import API_SERVER, build
from cluster.parts.control_plane import Keys, api_server_command, etcd_command, make_keys, write_kubeconfig
from support.buckets.minio import free_port

START_SECONDS_MAX = 300


class ApiServer:
    """One API server on a free port of loopback, with its files in one folder.

    `kubeconfig` is an administrator's. `audit_log` has one JSON object a line for each write: who (`user`,
    `userAgent`), what (`verb`, `objectRef`, and the field manager in `requestURI`), when, and the answer's code.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._port, self._etcd_ports = free_port(), (free_port(), free_port())
        make_keys(folder, "IP:127.0.0.1,DNS:localhost")
        self._keys = Keys.within(folder)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.url = f"https://127.0.0.1:{self._port}"
        self.kubeconfig = folder / "kubeconfig"
        self.audit_log = folder / "audit.log"
        write_kubeconfig(self.kubeconfig, self.url, self._keys.authority, self._keys.admin)

    def start(self) -> None:
        """Start what does not run, on the same ports and data as before; returns when the API is ready."""
        self._start("etcd", etcd_command(self._folder, *self._etcd_ports))
        self._start(
            "kube-apiserver",
            [
                *api_server_command(self._folder, self._etcd_ports[0], self._port),
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                # Nobody makes the default service accounts, without which every pod would be refused.
                "--disable-admission-plugins=ServiceAccount",
                # Loopback can't be the endpoint of a service.
                "--endpoint-reconciler-type=none",
            ],
        )
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self.is_ready():
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise RuntimeError(f"{name} ended with code {process.returncode}: {self._log(name)}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"no API server within {START_SECONDS_MAX} s: {self._log('kube-apiserver')}")
            time.sleep(0.1)

    def kill(self) -> None:
        """`kill -9` the API server; etcd stays. `start` brings it back."""
        process = self._processes.pop("kube-apiserver")
        process.kill()
        process.wait()

    def stop(self) -> None:
        """End both processes; what they stored stays in the folder."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        self._processes.clear()

    def is_ready(self) -> bool:
        """Whether `/readyz` succeeds, which it does when the API's own roles and namespaces exist, too."""
        context = ssl.create_default_context(cafile=str(self._keys.authority))
        context.load_cert_chain(self._keys.admin.certificate, self._keys.admin.key)
        try:
            urllib.request.urlopen(f"{self.url}/readyz", timeout=5, context=context).close()
        except OSError:
            return False
        return True

    def _start(self, name: str, command: list[str]) -> None:
        if name not in self._processes:
            with (self._folder / f"{name}.log").open("ab") as log:
                self._processes[name] = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def _log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace")[-1500:]


@contextmanager
def running_api_server(folder: Path) -> Iterator[Path]:
    """Yields the administrator's kubeconfig of an API server that runs meanwhile, with its files in `folder`.

    Builds etcd and kube-apiserver if they are missing, which takes minutes; raises `cluster.binaries.NoCluster`, with
    the reason to skip for, where that is not possible.
    """
    build(API_SERVER)
    server = ApiServer(folder)
    try:
        server.start()
        yield server.kubeconfig
    finally:
        server.stop()
