"""Tests that crash processes and servers on purpose, and then check that no record was lost or duplicated."""
