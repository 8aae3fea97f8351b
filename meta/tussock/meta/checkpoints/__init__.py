"""Barriers of coordinated checkpoints: pure, without any I/O."""
