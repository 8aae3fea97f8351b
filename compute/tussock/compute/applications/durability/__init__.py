"""How requests and state become durable: the input log, its writer, commits beside the work, progress."""
