"""The part of slime.rollout that a custom generate function meets."""
