"""The client's side of the protocol.

gRPC writes a line to stderr for each handshake that fails, at each attempt, and our errors say the same once. It reads
its variable when it is loaded, so this stands before whatever loads it; one that is set already holds.
"""

import os

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
