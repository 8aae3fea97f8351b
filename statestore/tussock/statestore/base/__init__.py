"""What every room stands on: time and locks, logs, checks of arguments, watched files, identities."""
