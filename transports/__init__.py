"""Thin carriers of bytes from one HTTP client into the core; each module needs its own extra, this one needs none.

They own what the core must not know: sockets, timeouts, retries and cancellation.
"""
