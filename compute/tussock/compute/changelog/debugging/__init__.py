"""Looking into a flow: conditions of breakpoints, steps by themselves, and transactions tried again."""
