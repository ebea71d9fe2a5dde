"""Commands that change the ledger; each is one transaction that locks the row of the pipeline's lease."""
