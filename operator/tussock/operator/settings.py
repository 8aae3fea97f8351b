"""The settings of the operator: flags override the environment, which overrides defaults.

`--lease-name x` is `TUSSOCK_OPERATOR_LEASE_NAME=x`. `docs/operator/reconciliation.md` has the table, which a test
compares with this. `--help` shows the same.
"""

import socket
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from tussock.operator.manifests.settings import Defaults
from tussock.operator.planning.words.allowances import allowance_of_text
from tussock.statestore.errors import InvalidOption

__all__ = ["PREFIX", "OperatorSettings", "help_text", "load_settings"]

PREFIX = "TUSSOCK_OPERATOR_"


def _split(value: object) -> object:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def _address(value: str) -> str:
    host, separator, port = value.rpartition(":")
    if not separator or not host or not port.isdigit() or int(port) > 65535:
        raise ValueError("should be HOST:PORT, such as 0.0.0.0:8080; port 0 takes a free one")
    return value


def _allowance(value: str) -> str:
    allowance_of_text(value)
    return value


class OperatorSettings(BaseModel):
    """All settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    namespaces: Annotated[tuple[str, ...], BeforeValidator(_split)] = Field(
        default=(), description="namespaces to serve, separated by commas; empty: all of the cluster"
    )
    identity: str = Field(default_factory=socket.gethostname, description="name of this replica; by default the host's")
    lease_namespace: str = Field(
        default="default", description="namespace of the Lease by which the replicas choose a leader"
    )
    lease_name: str = Field(default="tussock-operator", description="name of the Lease; one for each group of replicas")
    node_image: str = Field(default="", description="image of meta nodes and compactors, where no resource names one")
    spark_image: str = Field(default="", description="image of drivers and executors, where no resource names one")
    minio_image: str = Field(default="", description="image of managed object stores, where no resource names one")
    prometheus_namespace: str = Field(
        default="",
        description="namespace of the Prometheus that may read metrics, by network policies; `*`: any; empty: none",
    )
    max_unavailable: Annotated[str, AfterValidator(_allowance)] = Field(
        default="1",
        description="number or percentage of the stores, of the services and of the jobs that an upgrade of the "
        "operator changes at a time",
    )
    upgrade_mode: Literal["Automatic", "Approve"] = Field(
        default="Automatic",
        description="whether stores change to another image by themselves, or wait until somebody approves of it, "
        "where `spec.upgrade.mode` does not say",
    )
    cluster_domain: str = Field(default="cluster.local", description="DNS domain of the cluster")
    http_listen: Annotated[str, AfterValidator(_address)] = Field(
        default="0.0.0.0:8080", description="address for `/healthz` and `/metrics`"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="lowest severity to log"
    )
    log_format: Literal["json", "text"] = Field(default="json", description="one JSON object a line, or text")

    @property
    def defaults(self) -> Defaults:
        """The part of the settings that the manifests use."""
        return Defaults(
            node_image=self.node_image,
            spark_image=self.spark_image,
            minio_image=self.minio_image,
            namespace=self.lease_namespace,
            prometheus_namespace=self.prometheus_namespace,
            cluster_domain=self.cluster_domain,
            upgrade_mode=self.upgrade_mode,
        )


def load_settings(arguments: Sequence[str], environ: Mapping[str, str]) -> OperatorSettings:
    """The settings of this process; `InvalidOption` with everything that is wrong, one line each."""
    names = OperatorSettings.model_fields
    found: dict[str, str] = {}
    problems: list[str] = []
    for name in names:
        if (value := environ.get(PREFIX + name.upper())) is not None:
            found[name] = value
    left = list(arguments)
    while left:
        flag, separator, value = left.pop(0).partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        if not flag.startswith("--") or name not in names:
            problems.append(f"{flag}: there is no such option; there are {', '.join(map(_flag, names))}")
        elif not separator and not left:
            problems.append(f"{flag} needs a value")
        else:
            found[name] = value if separator else left.pop(0)
    try:
        settings = OperatorSettings.model_validate(found)
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            name = str(problem["loc"][0])
            problems.append(f"{_flag(name)} ({PREFIX}{name.upper()}): {problem['msg'].removeprefix('Value error, ')}")
    if problems:
        raise InvalidOption("the operator's settings are invalid:\n" + "\n".join(f"- {text}" for text in problems))
    return settings


def help_text() -> str:
    """What the process does and each flag with its default, for a terminal; ends without a newline."""
    lines = [
        "tussock-operator [--flag value ...]",
        "",
        "Serves the resources of Tussock in a cluster: that of its pod, or of KUBECONFIG or ~/.kube/config.",
        f"Each flag is also a variable: --lease-name is {PREFIX}LEASE_NAME; the flag has priority.",
        "",
    ]
    for name, field in OperatorSettings.model_fields.items():
        default = "" if field.default_factory or field.default in ((), "") else f" [{field.default}]"
        lines.append(f"  {_flag(name):<24}{(field.description or '').replace('`', '')}{default}")
    return "\n".join(lines)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
