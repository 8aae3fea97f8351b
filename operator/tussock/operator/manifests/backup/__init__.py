"""The pods that copy backups: to another bucket, and into the place of a new store."""
