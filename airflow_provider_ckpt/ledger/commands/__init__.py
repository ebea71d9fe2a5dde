"""Change the ledger by commands; each is one transaction that locks the row of the pipeline's lease."""
