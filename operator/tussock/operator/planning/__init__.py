"""What to do about the difference: pure plans of actions and status, from a resource and what is observed."""
