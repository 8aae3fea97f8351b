"""What the plugin asks of meta nodes themselves, over a forwarded port."""
