"""What a read sees, and the reads of one table on it."""
