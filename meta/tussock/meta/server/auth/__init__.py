"""Authentication, authorization, and the credentials of the bucket that callers are handed."""
