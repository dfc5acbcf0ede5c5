"""What the slime and the miles adapter share about one call."""
