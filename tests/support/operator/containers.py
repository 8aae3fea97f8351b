"""Runs the main container of a pod template as a process of this machine, without a cluster.

The command, arguments and variables are the template's own; of paths, ports and names of hosts, those that only mean
something in a pod are replaced, in them as in the files that are mounted.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from support.service.meta_process import ServiceProcess

__all__ = ["ContainerProcess", "MinioContainer", "main_container", "mounted_files"]

TUSSOCK = Path(sys.executable).with_name("tussock")


def main_container(template: Mapping[str, Any]) -> dict[str, Any]:
    """The first container of a pod template, which is the operator's."""
    return dict(template["spec"]["containers"][0])


def replace_names(text: str, names: Mapping[str, str]) -> str:
    """The text with each of `names` replaced, in one pass: a replacement is not replaced again."""
    longest_first = sorted(names, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, longest_first)), lambda match: names[match[0]], text)


def mounted_files(
    template: Mapping[str, Any], root: Path, sources: Mapping[str, Mapping[str, str]], names: Mapping[str, str]
) -> None:
    """Write what the template mounts below `root`; `sources` are the files of secrets and config maps by name."""
    volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
    for mount in main_container(template)["volumeMounts"]:
        folder = root / mount["mountPath"].removeprefix("/")
        folder.mkdir(parents=True, exist_ok=True)
        volume = volumes[mount["name"]]
        source = volume.get("secret", {}).get("secretName") or volume.get("configMap", {}).get("name")
        if source is None:
            continue
        items = volume.get("secret", {}).get("items") or [{"key": key, "path": key} for key in sources[source]]
        for item in items:
            (folder / item["path"]).write_text(replace_names(sources[source][item["key"]], names))


def environment(container: Mapping[str, Any], fields: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    """The container's variables; `fields` are those that the kubelet fills from the pod."""
    found = {}
    for variable in container["env"]:
        value = variable["value"] if "value" in variable else fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        found[variable["name"]] = replace_names(value, names)
    return found


class ContainerProcess(ServiceProcess):
    """A container whose image begins with the command `tussock`."""

    def __init__(self, template: Mapping[str, Any], fields: Mapping[str, str], names: Mapping[str, str]) -> None:
        container = main_container(template)
        variables = environment(container, fields, names)
        arguments = []
        for argument in container["args"]:
            for name, value in variables.items():
                argument = argument.replace(f"$({name})", value)
            arguments.append(replace_names(argument, names))
        super().__init__(*arguments, environment=variables)


class MinioContainer:
    """The container of a managed object store, with the machine's own `minio` for the image's."""

    def __init__(self, template: Mapping[str, Any], binary: Path, names: Mapping[str, str], log: Path) -> None:
        container = main_container(template)
        assert container["command"] == ["minio"]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [binary, *(replace_names(argument, names) for argument in container["args"])],
                env={"PATH": os.environ.get("PATH", ""), **environment(container, {}, names)},
                stdout=output,
                stderr=output,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(30)
