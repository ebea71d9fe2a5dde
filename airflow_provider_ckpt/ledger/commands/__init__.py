"""Commands that change the ledger; a command of a run is one transaction that locks the row of the pipeline's lease."""
