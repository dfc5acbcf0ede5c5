"""The fake servers themselves: their bytes, their account, and how they are built."""
