"""Flows whose streams share one key, as something to send to other processes that each run some of the keys."""
