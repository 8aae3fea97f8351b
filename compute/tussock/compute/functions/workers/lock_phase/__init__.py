"""How the losers of an epoch run again in several workers."""
