"""What the clients share: reading, folding, cancelling, aborting, retrying, metrics."""
