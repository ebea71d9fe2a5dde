"""Records that nobody would send on purpose, and an independent judge of what is to become of them."""
