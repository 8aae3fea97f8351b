"""What the Spark image runs for a driver and for an executor."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SPARK_IMAGE = Path(__file__).resolve().parents[2] / "images" / "spark"
# What Spark 4 sets in the pod of an executor.
EXECUTOR = {
    "SPARK_HOME": "/opt/spark",
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1g",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.1.2.3",
    "SPARK_EXECUTOR_POD_NAME": "job-exec-3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
}


@pytest.fixture(scope="module")
def entrypoint() -> ModuleType:
    spec = importlib.util.spec_from_file_location("spark_entrypoint", SPARK_IMAGE / "entrypoint.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_driver_is_spark_submit_in_client_mode(entrypoint: ModuleType) -> None:
    """The arguments follow, and no address is bound that Spark did not name."""
    command = entrypoint.command_for(["driver", "--conf", "a=b", "app.py"], {"SPARK_HOME": "/opt/spark"})
    assert command == ["/opt/spark/bin/spark-submit", "--deploy-mode", "client", "--conf", "a=b", "app.py"]


def test_the_driver_binds_the_address_that_spark_gives(entrypoint: ModuleType) -> None:
    """In cluster mode Spark gives the driver's pod its address."""
    environment = {"SPARK_HOME": "/opt/spark", "SPARK_DRIVER_BIND_ADDRESS": "10.1.2.3"}
    command = entrypoint.command_for(["driver", "app.py"], environment)
    assert command[3:] == ["--conf", "spark.driver.bindAddress=10.1.2.3", "app.py"]


def test_executor_is_the_backend_with_what_spark_sets(entrypoint: ModuleType) -> None:
    """Java's options are in the order of their numbers, and the configuration is found before the jars."""
    options = {f"SPARK_JAVA_OPT_{number}": f"-Dn={number}" for number in range(11)}
    command = entrypoint.command_for(["executor"], {**EXECUTOR, **options, "SPARK_CLASSPATH": "/jars/x.jar"})
    java, settings, rest = command[0], command[1:12], command[12:]
    assert java == "java"
    assert settings == [f"-Dn={number}" for number in range(11)]
    assert rest[:4] == ["-Xms1g", "-Xmx1g", "-cp", "/opt/spark/conf:/jars/x.jar:/opt/spark/jars/*"]
    assert rest[4] == "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    pairs = dict(zip(rest[5::2], rest[6::2], strict=True))
    assert pairs == {
        "--driver-url": "spark://CoarseGrainedScheduler@driver:7078",
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.1.2.3",
        "--resourceProfileId": "0",
        "--podName": "job-exec-3",
    }


@pytest.mark.parametrize("name", [name for name in EXECUTOR if name != "SPARK_HOME"])
def test_an_executor_names_missing_variables(entrypoint: ModuleType, name: str) -> None:
    """A pod that Spark did not make ends with the names of the variables that it lacks."""
    environment = {key: value for key, value in EXECUTOR.items() if key != name}
    with pytest.raises(entrypoint.MissingVariable, match=name):
        entrypoint.command_for(["executor"], environment)


def test_anything_else_is_a_command(entrypoint: ModuleType) -> None:
    """`kubectl run --image tussock-spark -- python -V` does what it says."""
    assert entrypoint.command_for(["python", "-V"], {}) == ["python", "-V"]


def test_process_is_replaced() -> None:
    """The command has the process of the entry point, so the pod's signals reach it."""
    program = [sys.executable, str(SPARK_IMAGE / "entrypoint.py"), "sh", "-c", "echo $$"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        told, _ = process.communicate(timeout=30)
    assert told.strip() == str(process.pid)


def test_java_home_is_honoured(entrypoint: ModuleType) -> None:
    """Java is that of JAVA_HOME, where there is one."""
    assert entrypoint.command_for(["executor"], {**EXECUTOR, "JAVA_HOME": "/java"})[0] == "/java/bin/java"


def test_scripts_are_executable() -> None:
    """The kubelet runs the script itself, and an image keeps the mode of a file."""
    assert os.access(SPARK_IMAGE / "decommission.sh", os.X_OK)
    assert shutil.which("sh")
    subprocess.run(["sh", "-n", str(SPARK_IMAGE / "decommission.sh")], check=True)
