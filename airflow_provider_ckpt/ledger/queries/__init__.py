"""Queries of the ledger: status, audit, receipts, missing ranges, events; each reads one snapshot without a lease."""
