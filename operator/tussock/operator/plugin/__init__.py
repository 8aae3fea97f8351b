"""`kubectl tussock`: how stores are, as their objects say it, and a few things to do with them."""
