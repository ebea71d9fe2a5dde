"""Tests of the code that runs in Spark, on a real local session."""
