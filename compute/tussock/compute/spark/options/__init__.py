"""What a user asks of a table: options, conditions and schemas, all checked here."""
