"""The ledger on a real PostgreSQL and on SQLite: the same tests for both."""
