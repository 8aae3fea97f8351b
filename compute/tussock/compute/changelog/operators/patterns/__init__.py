"""Sequences of rows that fulfil conditions one after the other."""
