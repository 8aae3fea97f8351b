"""How processes and threads append to one log: together, in turns, and with the outcome of each call."""
