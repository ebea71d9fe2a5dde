"""Crashes of everything that a replication stands on, at random moments; see ``tests/chaos/chaos.py``."""
