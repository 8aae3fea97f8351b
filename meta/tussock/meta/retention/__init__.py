"""What must stay readable and what may go: pins, vacuum, backups, restores and clones."""
