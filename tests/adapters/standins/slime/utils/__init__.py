"""The part of slime.utils that rollouts use."""
