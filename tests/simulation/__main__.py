"""`python -m simulation`; see `simulate.py`."""

import sys

from simulation.simulate import main

if __name__ == "__main__":
    sys.exit(main())
