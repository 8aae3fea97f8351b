"""The streams of a flow as a program of the runner: what runs them, what they leave, and what is replayed."""
