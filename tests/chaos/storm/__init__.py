"""Storm test: send random commands to one ledger, and compare the ledger with the commands that it acknowledged."""
