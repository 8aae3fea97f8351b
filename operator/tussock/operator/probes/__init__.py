"""What the API server cannot tell: whether a bucket can be written, whether a platform serves."""
