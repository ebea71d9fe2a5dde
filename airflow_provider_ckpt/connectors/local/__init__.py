"""Shared by connectors that write to a local or mounted file system: durable writes, and bookkeeping as files."""
