"""Authentication and authorization of callers, and certificates of the process itself."""
