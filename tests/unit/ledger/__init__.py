"""Unit tests of the ledger that need no database."""
