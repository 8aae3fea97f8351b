"""Tests that share one platform and its stream; in one package, so that these end with the last test."""
