"""Stand-ins for frameworks that can not be installed here; each says what it was written from."""
