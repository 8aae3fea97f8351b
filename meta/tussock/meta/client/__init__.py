"""The client of a meta service: what `connect("tussock://...")` opens, and what compactor nodes speak through."""
