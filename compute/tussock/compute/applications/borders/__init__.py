"""What all kinds of applications have beside their programs: dead letters of feeds, outputs, and threads for both."""
