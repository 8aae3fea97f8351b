"""Kafka as input and output of applications; needs the extra `tussock[kafka]`."""
