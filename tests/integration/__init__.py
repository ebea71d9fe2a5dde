"""Tests against real services."""
