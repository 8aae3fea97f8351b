"""Checks for the secret that a job's driver and executors share."""

from collections.abc import Mapping

from tussock.operator.manifests.compute.spark_security import spark_secret_name
from tussock.operator.planning.words.model import Manifest, Ref
from tussock.operator.resources.compute import Compute

__all__ = ["DRAW_SPARK_SECRET", "secret_version"]

DRAW_SPARK_SECRET = "draw-spark-secret"  # noqa: S105 - the name of a piece of work


def secret_version(compute: Compute, others: Mapping[Ref, Manifest]) -> str | None:
    """A value that changes when the secret is drawn again, as after its deletion; `None` if there is none yet.

    A running driver has the old secret, and refuses executors that start with the new one.
    """
    found = others.get(Ref("Secret", spark_secret_name(compute.name)))
    return None if found is None else str(found["metadata"].get("uid", ""))
