"""Sources and sinks. ``protocols`` defines their interfaces; ``registry`` imports a connector when it is needed."""
