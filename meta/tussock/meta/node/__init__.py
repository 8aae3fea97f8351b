"""What every process has that serves callers: their identity and roles, encryption, HTTP, health, settings.

The meta service and the node of an application are such processes; a client needs nothing of this.
"""
