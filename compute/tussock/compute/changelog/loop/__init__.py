"""The loop of a stream: INPUT, COMPUTE, PUT, OUTPUT and BAD_ROW, one transaction at a time."""
