"""What flows between streams: records, transactions of them, and their bytes."""
