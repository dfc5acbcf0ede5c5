"""Tests of a state as bytes."""
