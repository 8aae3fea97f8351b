"""What plans are made of: facts, actions, conditions, and how a child compares with what it should be."""
