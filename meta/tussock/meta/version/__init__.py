"""The state that the log describes, and each change to it: pure, without any I/O."""
