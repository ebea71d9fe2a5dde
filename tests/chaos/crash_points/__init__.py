"""Crashes of everything that a replication rests on, at random moments; see ``tests/chaos/chaos.py``."""
