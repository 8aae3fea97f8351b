"""Transactions of a Spark job: several steps over several tables as one epoch."""
