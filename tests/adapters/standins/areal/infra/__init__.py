"""The part of areal.infra that generates."""
