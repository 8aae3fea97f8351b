"""`kubectl tussock`: the state of stores, as their objects report it, and a few actions on them."""
