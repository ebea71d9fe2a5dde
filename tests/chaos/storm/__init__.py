"""Storm test: random commands on one ledger, and the judge that compares the ledger with what it acknowledged."""
