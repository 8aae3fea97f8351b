"""The tables of a flow: what they have to be, how they follow declarations, and whether others have changed them."""
