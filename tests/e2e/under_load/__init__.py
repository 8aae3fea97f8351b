"""Tests that share one platform and its stream; a package, so that these end with the last of them."""
