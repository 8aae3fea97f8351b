"""Who calls, what they may do, and what they are handed for the bucket."""
