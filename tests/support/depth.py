"""How far those tests go that could go on for ever: random histories, kills, and long streams.

`TUSSOCK_DEPTH=10`, as `make test-night` sets it, gives each ten times as many. With 1 they find what was broken by a
change; more of them look for what nobody has met yet.
"""

import os

__all__ = ["DEPTH"]

DEPTH = int(os.environ.get("TUSSOCK_DEPTH", "1"))
