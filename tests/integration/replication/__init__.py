"""Whole runs against real PostgreSQL and Spark."""
