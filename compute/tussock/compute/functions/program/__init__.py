"""What users write: operators and their functions, and what a function is given."""
