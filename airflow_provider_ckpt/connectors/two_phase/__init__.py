"""Shared by the sinks of table formats: lanes stage files, and one commit a wave adds them to the table."""
