"""What the operator costs while nothing changes: CPU, memory and requests with many StateStores that all serve.

And how soon a child that is deleted is back.

    python benchmarks/operator_idle.py [--stores 50] [--seconds 120]

Against a real API server and a real MinIO; no kubelet runs, so workloads are told to be ready through their status, and
meta nodes cannot be asked (each try costs a failed look-up, more than an answer would). Each store has two meta nodes
and a compactor: three resources with eleven children. Prints one JSON object.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from cluster.binaries import API_SERVER, build  # noqa: E402 - found by the path above
from support.buckets.minio import MinioServer, find_binary  # noqa: E402
from support.kubernetes.api_server import ApiServer  # noqa: E402
from support.kubernetes.kubectl import Kubectl  # noqa: E402
from support.operator.process import Objects, OperatorProcess, eventually  # noqa: E402
from support.operator.stores_in_cluster import store_on  # noqa: E402

SETTLE_SECONDS = 20.0


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far, from `/proc`."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int, field: str) -> float:
    """`VmRSS` or `VmHWM` of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def serve_all(objects: Objects, stores: int) -> None:
    """Say of every Deployment that it is ready, until every store is."""
    done: set[str] = set()

    def is_done() -> bool:
        for body in objects.list("Deployment"):
            name = body["metadata"]["name"]
            if name not in done:
                objects.serve("Deployment", name)
                done.add(name)
        found = [objects.ready("StateStore", f"store-{number}").get("status") for number in range(stores)]
        return found.count("True") == stores

    eventually("all stores ready", is_done, 600)


def put_right_seconds(objects: Objects, stores: int) -> list[float]:
    """Delete a Service of ten stores, one after the other: how long each was away, by polling every 10 ms."""
    found = []
    for number in range(min(10, stores)):
        name = f"store-{number}-meta"
        objects.delete("Service", name)
        began = time.monotonic()
        while objects.get("Service", name) is None:
            time.sleep(0.01)
        found.append(time.monotonic() - began)
    return sorted(found)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--stores", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=120.0)
    arguments = parser.parse_args()
    build(API_SERVER)
    binary = find_binary()
    assert binary is not None, "run the tests once: they build MinIO"
    with tempfile.TemporaryDirectory() as folder:
        server, minio = ApiServer(Path(folder) / "api"), MinioServer(binary, Path(folder) / "minio")
        minio.start()
        server.start()
        try:
            kubectl = Kubectl(server.kubeconfig, Path(folder) / "cache")
            kubectl.done("apply", "--server-side", "-f", str(ROOT / "crds"))
            kubectl.done("wait", "--for=condition=Established", "--timeout=60s", "-f", str(ROOT / "crds"))
            objects = Objects(server.kubeconfig, "many")
            objects.make_namespace()
            operator = OperatorProcess(server.kubeconfig, Path(folder), "many", lease="many")
            operator.start()
            began = time.monotonic()
            for number in range(arguments.stores):
                objects.apply(store_on(minio, objects, f"store-{number}"))
            serve_all(objects, arguments.stores)
            created = time.monotonic() - began
            time.sleep(SETTLE_SECONDS)
            cpu, passes = cpu_seconds(operator.pid), operator.metric("tussock_operator_reconcile_seconds_count")
            writes, requests = len(objects.writes()), operator.metric("tussock_operator_api_requests_total")
            began = time.monotonic()
            time.sleep(arguments.seconds)
            spent = time.monotonic() - began
            cpu = cpu_seconds(operator.pid) - cpu
            passes = operator.metric("tussock_operator_reconcile_seconds_count") - passes
            writes = len(objects.writes()) - writes
            requests = operator.metric("tussock_operator_api_requests_total") - requests
            away = put_right_seconds(objects, arguments.stores)
            print(
                json.dumps(
                    {
                        "stores": arguments.stores,
                        "seconds": round(spent, 1),
                        "cpu_percent_of_a_core": round(100 * cpu / spent, 2),
                        "memory_mib": round(memory_mib(operator.pid, "VmRSS")),
                        "memory_peak_mib": round(memory_mib(operator.pid, "VmHWM")),
                        "passes": passes,
                        "writes": writes,
                        "requests": requests,
                        "deleted_child_back_seconds": {
                            "median": round(away[len(away) // 2], 2),
                            "most": round(away[-1], 2),
                        },
                        "load_average": round(os.getloadavg()[0], 1),
                        "all_ready_after_seconds": round(created, 1),
                    }
                )
            )
            operator.stop()
        finally:
            server.stop()
            minio.stop()


if __name__ == "__main__":
    main()
