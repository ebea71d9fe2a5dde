"""The ledger's tables: how the core's state is loaded, stored and migrated."""
