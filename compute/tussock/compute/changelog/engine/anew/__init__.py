"""Streams that begin with the rows of their inputs: those that are added, made anew, or forgotten."""
