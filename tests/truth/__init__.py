"""What servers generate, and how each of them writes it: strategies, scripts and recorded bodies."""
