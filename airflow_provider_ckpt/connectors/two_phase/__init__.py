"""What the sinks of table formats share: lanes stage files, and one commit a wave makes them part of the table."""
