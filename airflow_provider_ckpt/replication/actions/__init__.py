"""Users' actions on a pipeline: skip, rewind, recover, replay dead letters, accept a sink."""
