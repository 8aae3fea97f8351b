"""The change feed in Spark: `readChangeFeed` for batch reads, and a source of streams that follows a table."""
