"""Write the golden manifests of jobs: `python tests/golden/write_computes.py`, from the project's root.

`tests/operator/manifests/test_compute_manifests.py` compares what the operator makes with them. Run this after a change
that is meant, and read the difference: whatever changes in the driver's pod or in Spark's settings restarts every
user's job.
"""

import sys
from pathlib import Path

FOLDER = Path(__file__).parent / "computes"


def main() -> None:
    sys.path[:0] = [str(FOLDER.parents[1])]
    from golden.write_manifests import text_of
    from support.operator.compute_cases import CASES, manifests_of

    FOLDER.mkdir(exist_ok=True)
    for case in CASES:
        (FOLDER / f"{case}.yaml").write_text(text_of(manifests_of(case)), encoding="utf-8")


if __name__ == "__main__":
    main()
