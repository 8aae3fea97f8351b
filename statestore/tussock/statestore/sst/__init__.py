"""SSTs: their blocks and metas as bytes, writing and reading them, and iterating and looking up over sorted runs."""
