"""Files as source, discovered once and recorded in a permanent order; and as sink, one file a batch."""
