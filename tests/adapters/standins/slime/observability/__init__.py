"""The part of slime.observability that rollouts use."""
