"""Which releases can read a store: what keeps the operator from starting nodes that would only end at once.

A release reads the logs of all older ones, and none of a newer format (`docs/upgrades.md`). So once a leader of a newer
release has written to a store, there is no way back to an image from before. The operator knows the format of a log
from the store's meta nodes, and that of an image from its tag, if the tag is a release. Of other images it learns by
the end of their first pod, whose last words `newer_format` knows.
"""

import re

__all__ = ["LOG_FORMATS", "WAY_OUT", "downgrade_refusal", "newer_format"]

LOG_FORMATS = {(0, 1): 7}
"""By release, the newest format of a log that it reads: a row for each that brings a new one, and the present one."""

_RELEASE = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})(?:\.[0-9]{1,4})?")
_NEWER = re.compile(r"[^\n]*; open the store with a newer Tussock")
WAY_OUT = (
    "Set an image of the release that wrote it, or of a newer one (spec.image of the Meta, spec.images.node of its "
    "StateStore, or the operator's default). To go back to an older release, restore a backup from before the upgrade "
    "into a new StateStore."
)


def downgrade_refusal(image: str, log_format: int, running: str) -> str:
    """Why no node is started with an image, if it is of a release that cannot read the store; empty otherwise.

    `log_format` is that of the store's log, 0 if it is not known; `running` is the image of the present nodes.
    """
    release = _release_of(image)
    known = LOG_FORMATS.get(release, 0) if release is not None else 0
    if release is None or not known or log_format <= known:
        return ""
    kept = f" The meta nodes keep image {running}." if running else ""
    return (
        f"Image {image} is of Tussock {release[0]}.{release[1]}, which reads logs up to format {known}, and a newer "
        f"release has written this store's in format {log_format}. The operator has started no node with it.{kept} "
        f"{WAY_OUT}"
    )


def newer_format(said: str) -> str:
    """What a node could not read, if these last words say that a newer release wrote it; empty otherwise."""
    found = _NEWER.search(said)
    return found[0].strip().removeprefix("error: ") if found else ""


def _release_of(image: str) -> tuple[int, int] | None:
    """The release that an image's tag names: `registry:5000/tussock-node:0.1.0` is 0.1; `None` for other tags."""
    name = image.partition("@")[0].rpartition("/")[2]
    found = _RELEASE.fullmatch(name.rpartition(":")[2]) if ":" in name else None
    return (int(found[1]), int(found[2])) if found else None
