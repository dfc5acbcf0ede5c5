"""Tests of the replay arrays."""
