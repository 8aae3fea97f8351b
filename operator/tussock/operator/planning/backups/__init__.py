"""Which backups and copies of them stay, and how copies are made."""
