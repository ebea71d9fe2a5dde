"""Alembic environment of the ledger, and its migrations."""
