"""The voter is a program beside the rooms, so the folder of examples is put on the path for its tests."""

import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
if str(EXAMPLES) not in sys.path:
    sys.path.insert(0, str(EXAMPLES))
