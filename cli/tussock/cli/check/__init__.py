"""The command `tussock check`: what in a bucket is not as it should be."""
