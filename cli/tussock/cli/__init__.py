"""The command `tussock`: looks into a store, changes and repairs it, and runs the services.

`main` puts the commands together, `commands` has a module for each group of them, and `check` finds what in a bucket is
not as it should be. What a command imports, it imports when it runs, so that `tussock --help` is there at once. The
rules are those of the rooms below: a command asks them, and prints what they return. `docs/command-line.md` lists all.
"""
