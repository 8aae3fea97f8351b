"""What messages of change data capture look like, and the changes that they are: Debezium, Canal, plain rows."""
