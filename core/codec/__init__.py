"""A state as bytes, and back."""
