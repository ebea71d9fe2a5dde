"""Sinks of table formats (Delta, Iceberg): lanes stage files, and one commit a wave adds them to the table."""
