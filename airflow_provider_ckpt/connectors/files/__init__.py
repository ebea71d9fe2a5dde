"""Files connector: a source that reads each file once, in the order of discovery; a sink that writes a file a batch."""
