"""Where versions are kept: the log of entries in the bucket, how it is appended to, read and truncated."""
