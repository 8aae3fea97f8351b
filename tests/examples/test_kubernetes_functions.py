"""The program and the workers of `examples/kubernetes/functions.yaml`, by the arguments that stand there."""

import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from support.children import path_of_imports
from support.service.meta_process import TUSSOCK, ServiceProcess
from tussock.compute import functions as fn

MANIFEST = Path(__file__).resolve().parents[2] / "examples" / "kubernetes" / "functions.yaml"
SECONDS = 60


class ProcessOfPod(ServiceProcess):
    """The container of a Deployment, in the folder that stands for its working folder."""

    def __init__(self, deployment: dict[str, Any], places: dict[str, str], folder: Path) -> None:
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        arguments = container["args"]
        for place, here in places.items():
            arguments = [argument.replace(place, here) for argument in arguments]
        super().__init__(*arguments, environment={"PYTHONPATH": path_of_imports(folder)})


def made_as_the_comment_says(folder: Path) -> None:
    """Tokens, by the commands in the manifest."""
    text = MANIFEST.read_text(encoding="utf-8")
    commands = [line for line in re.findall(r"^#   (.*)$", text, re.MULTILINE) if not line.startswith("kubectl")]
    script = "\n".join(commands).replace("tussock ", f"{TUSSOCK} ")
    subprocess.run(["bash", "-ec", script], cwd=folder, check=True, timeout=SECONDS)


def test_program_and_workers_of_the_manifest_run(tmp_path: Path) -> None:
    """Three pods join, two work; tokens are those that the commands in the manifest make."""
    bodies = list(yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8")))
    named = {(body["kind"], body["metadata"]["name"]): body for body in bodies}
    made_as_the_comment_says(tmp_path)
    for name, text in named["ConfigMap", "bank"]["data"].items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    workers = named["Deployment", "bank-workers"]
    # The port of the Service is that which the program has, also while it is not ready.
    service = named["Service", "bank-workers"]["spec"]
    assert service["publishNotReadyAddresses"]
    assert service["ports"][0]["port"] == 7382
    places = {"s3://company-state/bank": (tmp_path / "store").as_uri(), "/etc/bank": str(tmp_path)}
    free = {**places, **{f"0.0.0.0:{port}": "127.0.0.1:0" for port in (7380, 7381, 7382)}}
    with ProcessOfPod(named["Deployment", "bank"], free, tmp_path) as program:
        places["bank-workers:7382"] = str(program.wait_for(event="taking workers")["address"])
        pods = [ProcessOfPod(workers, places, tmp_path) for _ in range(workers["spec"]["replicas"])]
        try:
            address = str(program.wait_for(event="serving")["address"])
            for pod in pods:
                pod.wait_for(event="ready")
            token = (tmp_path / "shop").read_text().rpartition(": ")[2].strip()
            with fn.Client(address, token=token) as client:
                assert client.send("account", "ann", "deposit", 50).result(SECONDS) == 50
                assert client.send("account", "ann", "transfer", "bob", 30).result(SECONDS) == 20
                assert client.query("account", "bob") == {"balance": 30}
                status = client.status()
                assert (status["workers"], status["workers_joined"]) == (2, len(pods))
            program.terminate()
            assert program.wait() == 0
        finally:
            for pod in pods:
                pod.terminate()
            assert [pod.wait() for pod in pods] == [0] * len(pods)
