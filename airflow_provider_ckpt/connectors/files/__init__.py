"""Files connector: a source that reads each file once, in the order of discovery, and a sink with one file a batch."""
