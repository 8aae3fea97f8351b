"""Bearer tokens that somebody else has signed: they are proven by asking, or by keys, and not by a list of hashes."""
