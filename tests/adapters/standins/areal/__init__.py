"""The part of areal that generates."""
