"""Replay arrays: int32 buffers, top-p rows, routed experts."""
