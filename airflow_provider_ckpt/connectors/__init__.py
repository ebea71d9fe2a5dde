"""Sources and sinks. ``protocols`` says what each is; ``registry`` finds one by its type, importing it only then."""
