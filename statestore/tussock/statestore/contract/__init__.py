"""What rooms hand to each other: records of tables and SSTs, the backend, the bucket, barriers."""
