"""Carry out a run from start to end: acquire the lease, reconcile with the sink, plan, execute waves, settle."""
