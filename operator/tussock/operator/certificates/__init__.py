"""The certificates that the operator issues: keys are drawn here, and nowhere else; nothing here talks to anybody."""
