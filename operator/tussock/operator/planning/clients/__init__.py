"""The clients of a store: their certificates, and those that are declared one by one."""
