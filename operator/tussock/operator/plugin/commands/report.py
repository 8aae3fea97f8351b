"""`kubectl tussock report`: a file with which others can find out what is wrong with a store."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from tussock.operator.plugin.kubectl import KubectlFailed
from tussock.operator.plugin.options import Context, Kubeconfig, Namespace, kubectl_of, namespace_of, store_of
from tussock.operator.plugin.report.archive import new_archive
from tussock.operator.plugin.report.contents import Scope, gather
from tussock.operator.resources.common import GROUP
from tussock.statestore.base.system import RealSystem

__all__ = ["report"]


def report(
    store: Annotated[
        str | None, typer.Argument(metavar="STORE", help="All of the namespace if left out.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to; a new file in this folder if left out."),
    ] = None,
    tail: Annotated[int, typer.Option("--tail", min=0, max=100_000, help="Lines of each log.")] = 2_000,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Write a tar.gz with resources, events, logs and versions, to send to others; secrets are left out.

    It asks for secrets, if you may read them, only to find their values in texts. What you may not read is noted.
    """
    kubectl = kubectl_of(namespace, context, kubeconfig)
    if store is not None:
        store_of(kubectl, store)
    else:
        # Where not even these can be read, there is nothing to report.
        kubectl.objects(f"statestores.{GROUP}")
    space = namespace_of(kubectl)
    now_ms = RealSystem().now_ms()
    now = datetime.fromtimestamp(now_ms // 1000, UTC)
    name = f"tussock-report-{store or space}-{now:%Y%m%dT%H%M%SZ}"
    path = Path(f"{name}.tar.gz") if output is None else output
    try:
        with new_archive(path, name, now_ms) as archive:
            gather(kubectl, Scope(space, store or "", tail), archive, now.isoformat())
    except OSError as error:
        raise KubectlFailed(f"the report cannot be written to {path}: {error.strerror or error}") from error
    size = path.stat().st_size
    sys.stdout.write(f"{path} ({size / 1024:,.0f} KiB) is written. Look through it before you send it.\n")
