"""Clients of stores, and jobs elsewhere: what they see of their stores, and what stores know of them."""
