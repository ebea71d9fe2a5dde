"""Commands that change the ledger; each is one transaction under the pipeline's lease."""
