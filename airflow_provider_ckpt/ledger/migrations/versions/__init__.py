"""Migrations of the ledger, one per revision."""
