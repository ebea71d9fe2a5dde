"""Tests of ``make compat`` itself."""
