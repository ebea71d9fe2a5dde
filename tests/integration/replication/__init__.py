"""Whole runs with real PostgreSQL and Spark."""
