"""A support bundle of a store: what it holds, what is taken out of it, and how large it may be."""
