"""Tests of the core's parts, each on its own."""
