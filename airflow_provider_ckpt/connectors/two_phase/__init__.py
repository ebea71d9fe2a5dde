"""Sinks of table formats (Delta, Iceberg): lanes stage files, and one commit for each wave adds them to the table."""
