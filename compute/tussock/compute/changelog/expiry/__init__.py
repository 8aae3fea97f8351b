"""Expiry: rows of a stream that go by themselves, by their age or their number."""
