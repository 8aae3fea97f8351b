"""The network side: gRPC and HTTP, limits of what comes in, and each call's way through the gate."""
