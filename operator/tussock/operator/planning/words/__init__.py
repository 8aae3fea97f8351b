"""The parts of plans: facts, actions, conditions, and the comparison of a child with its manifest."""
