"""How resources come to be looked at, and one pass over one of them."""
