"""Tables as users have them, raw and typed: writes checked and shaped, reads, and change feeds."""
