"""What a pod of this image runs: Spark's driver, an executor, or any other command.

The first argument decides, as Spark itself writes it into the pods that it makes:

- `driver ARGUMENTS`: `spark-submit` in client mode with these arguments.
- `executor`: the executor that the environment describes; Spark sets it (`Constants.scala` of its Kubernetes module).
- anything else is a command, for a look around.

The process replaces this one, so that it gets the pod's signals: SIGTERM ends it, SIGPWR decommissions an executor.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence

BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
# Option of the executor's backend -> variable that Spark sets for it.
BACKEND_OPTIONS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


class MissingVariable(Exception):
    """Spark did not set a variable that an executor can't start without."""


def command_for(arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """The command line to run; raises `MissingVariable`."""
    match list(arguments):
        case ["driver", *rest]:
            return driver_command(rest, environment)
        case ["executor"]:
            return executor_command(environment)
        case []:
            return [f"{environment['SPARK_HOME']}/bin/spark-submit", "--version"]
        case command:
            return command


def driver_command(rest: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """`spark-submit` within the pod; in cluster mode Spark says which address the driver has to bind."""
    bind = environment.get("SPARK_DRIVER_BIND_ADDRESS")
    address = ["--conf", f"spark.driver.bindAddress={bind}"] if bind else []
    return [f"{environment['SPARK_HOME']}/bin/spark-submit", "--deploy-mode", "client", *address, *rest]


def executor_command(environment: Mapping[str, str]) -> list[str]:
    """The JVM of an executor, with Spark's options for it in the order of their numbers."""
    wanted = [*BACKEND_OPTIONS.values(), "SPARK_EXECUTOR_MEMORY", "SPARK_HOME"]
    if missing := [name for name in wanted if not environment.get(name)]:
        raise MissingVariable(f"an executor needs {', '.join(missing)}, which Spark sets in the pods that it makes")
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    java_home = environment.get("JAVA_HOME")
    command = [f"{java_home}/bin/java" if java_home else "java"]
    command += java_options(environment)
    command += [f"-Xms{memory}", f"-Xmx{memory}", "-cp", class_path(environment), BACKEND]
    for option, name in BACKEND_OPTIONS.items():
        command += [option, environment[name]]
    return command


def java_options(environment: Mapping[str, str]) -> list[str]:
    """The values of SPARK_JAVA_OPT_0, _1... by number: the tenth comes after the ninth."""
    found = {re.fullmatch(r"SPARK_JAVA_OPT_(\d+)", name): value for name, value in environment.items()}
    return [value for _, value in sorted((int(match[1]), value) for match, value in found.items() if match)]


def class_path(environment: Mapping[str, str]) -> str:
    """The configuration before all jars, which may hold defaults of the same files; then the user's, then Spark's."""
    home = environment["SPARK_HOME"]
    parts = [
        environment.get("SPARK_CONF_DIR") or f"{home}/conf",
        environment.get("HADOOP_CONF_DIR"),
        environment.get("SPARK_CLASSPATH"),
        f"{home}/jars/*",
        environment.get("SPARK_EXTRA_CLASSPATH"),
    ]
    return os.pathsep.join(part for part in parts if part)


def main() -> None:
    """Replace this process."""
    try:
        command = command_for(sys.argv[1:], os.environ)
    except MissingVariable as error:
        sys.exit(f"entrypoint: {error}")
    os.execvp(command[0], command)  # noqa: S606 (a pod runs what its owner says)


if __name__ == "__main__":
    main()
