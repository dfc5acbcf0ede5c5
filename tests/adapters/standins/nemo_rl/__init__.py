"""The part of nemo_rl that generates."""
