"""The process of a driver's container."""

import os
import sys

from tussock.compute.driver.launch import run
from tussock.statestore.base.system import RealSystem

if __name__ == "__main__":
    run(sys.argv[1:], os.environ, RealSystem())
