"""Queries that read the ledger; each sees one snapshot and needs no lease."""
