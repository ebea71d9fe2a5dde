"""Tests of what runs in Spark, on a real local session."""
