"""What feeds streams: the changes of a table, messages of Kafka, files of a folder."""
