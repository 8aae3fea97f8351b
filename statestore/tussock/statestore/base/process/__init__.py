"""What is of a whole process: its forks, whether a store is still open in it, and how often it looks for garbage."""
