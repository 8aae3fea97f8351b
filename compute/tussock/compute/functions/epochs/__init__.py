"""How transactions run: numbers, call graphs, conflicts, and the phases of an epoch."""
