"""What is kept: the state of entities, and replies to requests."""
