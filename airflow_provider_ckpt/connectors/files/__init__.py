"""Files as source: JSON lines and CSV, discovered once and recorded in a durable order."""
