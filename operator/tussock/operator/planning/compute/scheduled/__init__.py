"""The runs of a batch job by its schedule, and their history."""
