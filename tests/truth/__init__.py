"""What servers generate, how each of them writes it, and that the encoder writes as they do."""
