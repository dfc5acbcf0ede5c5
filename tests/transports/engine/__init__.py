"""What the clients share, module by module."""
