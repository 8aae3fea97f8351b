"""The handlers that kopf calls: thin, each gathers facts, plans and acts."""
