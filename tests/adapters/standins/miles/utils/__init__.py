"""The part of miles.utils that rollouts use."""
