"""What pods of all kinds share."""
