"""The part of areal.api that generates."""
