"""What gives an application its batches without a client: the change feed of a table, a topic of Kafka."""
