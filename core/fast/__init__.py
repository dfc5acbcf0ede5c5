"""The fast path: payloads that repeat the form of the one before."""
