"""Whether a job has the secret by which its driver and its executors know each other."""

from collections.abc import Mapping

from tussock.operator.manifests.compute.spark_security import spark_secret_name
from tussock.operator.planning.words.conditions import Verdict
from tussock.operator.planning.words.model import Manifest, Ref
from tussock.operator.planning.words.ownership import belongs, holder_of, in_the_way
from tussock.operator.resources.compute import Compute

__all__ = ["DRAW_SPARK_SECRET", "foreign_secret", "secret_version"]

DRAW_SPARK_SECRET = "draw-spark-secret"  # noqa: S105 - the name of a piece of work


def secret_version(compute: Compute, others: Mapping[Ref, Manifest]) -> str | None:
    """What is another one when the secret was drawn anew, as after its deletion; `None` if there is none yet.

    A driver that runs has the former one, and takes no executor that starts with the new one.
    """
    found = others.get(Ref("Secret", spark_secret_name(compute.name)))
    return None if found is None else str(found["metadata"].get("uid", ""))


def foreign_secret(compute: Compute, name: str, others: Mapping[Ref, Manifest]) -> Verdict | None:
    """The verdict where a Secret with a name of the job's is somebody else's; it is neither used nor touched."""
    ref = Ref("Secret", name)
    holder = holder_of(compute)
    if ref not in others or belongs(others[ref], holder):
        return None
    return in_the_way(ref, others[ref], compute.namespace, holder)
