"""The protocol of applications: messages, roles, errors."""
