"""Copies of backups in another bucket, which outlive the store."""
