"""The part of miles.rollout that a generate function meets."""
