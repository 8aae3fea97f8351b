"""What kopf calls: thin, each gathers facts, plans and acts."""
