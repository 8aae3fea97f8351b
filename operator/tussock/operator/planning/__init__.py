"""Pure plans of actions and status, from a resource and what is observed."""
