"""The port of HTTP, the health service of gRPC, and how often what a caller does is answered or logged."""
