"""Short chaos and storm tests on real databases."""
