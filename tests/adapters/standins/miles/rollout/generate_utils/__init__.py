"""What miles offers to those who write generate functions."""
