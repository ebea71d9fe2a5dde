"""Sources and sinks.

``source_protocol`` and ``sink_protocol`` define their interfaces; ``registry`` imports a connector when it is needed.
"""
