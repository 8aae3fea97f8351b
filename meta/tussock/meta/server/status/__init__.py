"""What the service tells about itself: the status document, its metrics and its console."""
