"""Write the golden manifests of services: `python tests/golden/write_services.py`, from the project's root.

`tests/operator/manifests/test_service_manifests.py` compares what the operator makes with them. Run this after a change
that is meant, and read the difference: whatever changes in the node's pod lets the clients of every user wait.
"""

import sys
from pathlib import Path

FOLDER = Path(__file__).parent / "services"


def main() -> None:
    sys.path[:0] = [str(FOLDER.parents[1])]
    from golden.write_manifests import text_of
    from support.operator.services.service_cases import SERVICE_CASES, service_manifests_of

    FOLDER.mkdir(exist_ok=True)
    for case in SERVICE_CASES:
        (FOLDER / f"{case}.yaml").write_text(text_of(service_manifests_of(case)), encoding="utf-8")


if __name__ == "__main__":
    main()
