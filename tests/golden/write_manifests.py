"""Write the golden manifests: `python tests/golden/write_manifests.py`, from the project's root.

`tests/operator/manifests/test_golden_manifests.py` compares what the operator makes with them. Run this after a change
that is meant, and read the difference: whatever changes in a pod template restarts the pods of every user.
"""

import sys
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "manifests"
RESTORES = Path(__file__).parent / "restores"
COPIES = Path(__file__).parent / "copies"


class _Readable(yaml.SafeDumper):
    """Text of several lines as such, and everything in full where it stands."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Readable.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def text_of(manifests: list[dict[str, Any]]) -> str:
    """Manifests as one file of YAML; names ascending, since the API does not keep their order either."""
    return yaml.dump_all(manifests, Dumper=_Readable, sort_keys=True, width=120, explicit_start=True)


def main() -> None:
    sys.path.insert(0, str(FOLDER.parents[1]))
    from support.operator.backups.copy_cases import COPY_CASES
    from support.operator.backups.restore_cases import RESTORE_CASES
    from support.operator.store_cases import CASES, manifests_of

    for case in CASES:
        (FOLDER / f"{case}.yaml").write_text(text_of(manifests_of(case)), encoding="utf-8")
    for folder, cases in ((RESTORES, RESTORE_CASES), (COPIES, COPY_CASES)):
        for case, made in cases.items():
            (folder / f"{case}.yaml").write_text(text_of(list(made)), encoding="utf-8")


if __name__ == "__main__":
    main()
