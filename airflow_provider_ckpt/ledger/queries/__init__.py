"""Queries of the ledger: status, audit, receipts, recovery plan, events; each reads one snapshot without a lease."""
