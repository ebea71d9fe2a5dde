"""Durable writes, dead letters and bookkeeping in files, for connectors of a local or mounted file system."""
