"""`python -m tussock.cli` is the command `tussock`."""

from tussock.cli.start import main

if __name__ == "__main__":
    main()
