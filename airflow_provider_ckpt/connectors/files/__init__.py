"""Files as source, discovered once and recorded in a durable order; and as sink, one a batch."""
