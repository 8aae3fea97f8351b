"""Requests that no caller sends: of the change feed of a table or a topic of Kafka; and where their replies go."""
