"""How many workers a served program has while it runs."""
