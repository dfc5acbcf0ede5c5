"""``ssefold record``: the raw bytes of a response, with the time of every read."""
