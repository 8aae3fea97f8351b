"""What a user asks of a table: options, conditions and schemas, checked once."""
