"""The stream of `examples/board` as a user's `Compute`: its progress, and whether its results are right."""

from pathlib import Path
from typing import Any

from support.kubernetes.users import SECONDS, User, resource

__all__ = ["BOARD", "QUICK_START", "Board"]

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For JVMs of which most live for a minute: the better compiler takes half of two cores, for code that soon ends."""

BOARD = Path(__file__).resolve().parents[3] / "examples" / "board"


class Board(User):
    """A user whose job `board` streams into the store `board`."""

    def job(self) -> list[dict[str, Any]]:
        """The program and its `Compute`."""
        files = {path.name: path.read_text() for path in BOARD.glob("*.py")}
        # What is reserved is little, so that all fits on two cores; it may use more.
        pods = {"memory": "512Mi", "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "1200Mi"}}}
        job = resource(
            "Compute",
            "board",
            storeRef={"name": "board"},
            application={"configMap": {"name": "board", "key": "board_stream.py"}},
            arguments=["--rows-per-batch", "200", "--seconds", "0.5"],
            sparkConf={
                "spark.sql.shuffle.partitions": "2",
                "spark.driver.extraJavaOptions": QUICK_START,
                "spark.executor.extraJavaOptions": QUICK_START,
            },
            restartPolicy={"backoffSeconds": 1},
            driver=pods,
            executor={"replicas": 1, **pods},
        )
        return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "board"}, "data": files}, job]

    def settle(self) -> None:
        """Wait until the whole platform serves, and the stream commits."""
        for what in ("tss/board", "tsm/board", "tsc/board", "tsx/board"):
            self.await_reason(what, "Ready", status="True")
        self.await_batches()

    def driver_pod(self) -> str:
        """The name of the driver's pod, which differs while a lost pod has the usual one."""
        return str(self.get("tsx/board")["status"].get("driverPod", "board-driver"))

    def driver(self) -> dict[str, Any]:
        """The driver's status, through the API server's proxy."""
        found = self.cluster.answer(f"/api/v1/namespaces/{self.namespace}/pods/{self.driver_pod()}:7372/proxy/status")
        assert isinstance(found, dict)
        return found

    def batch(self) -> int:
        """The newest batch that the driver has committed; waits for the first one."""
        return int(self.cluster.wait_for("a batch", lambda: self.driver()["committedBatch"], SECONDS))

    def await_batches(self, more: int = 2, since: int | None = None) -> None:
        """Wait until `more` batches are in the store beyond now, or beyond the batch `since`."""
        wanted = (self.batch() if since is None else since) + more
        self.cluster.wait_for(f"batch {wanted}", lambda: self.driver()["committedBatch"] >= wanted, SECONDS)

    def pods(self, component: str) -> list[dict[str, Any]]:
        """The pods of a component that are not about to go."""
        found = self.cluster.list("pods", self.namespace, f"app.kubernetes.io/component={component}")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def executors(self) -> list[str]:
        """The pods of executors that have not ended."""
        found = self.cluster.list("pods", self.namespace, "tussock.dev/role=executor")
        return [pod["metadata"]["name"] for pod in found if pod["status"]["phase"] in ("Pending", "Running")]

    def expect_exact(self, events: int = 1) -> int:
        """Assert that all tables are what the events in them ask for; returns how many these are, at least `events`."""
        files = {"board_truth.py": (BOARD / "board_truth.py").read_text()}
        found = self.run("check_board", store="board", files=files)
        assert found["wrong"] == []
        count = found["events"]
        assert isinstance(count, int)
        assert count >= events
        return count
