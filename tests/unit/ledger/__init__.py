"""What of the ledger needs no database."""
