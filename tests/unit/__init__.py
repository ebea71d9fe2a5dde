"""Fast tests without services."""
