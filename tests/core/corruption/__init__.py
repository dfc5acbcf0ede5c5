"""The corruption matrix: every kind of damage at every place of every profile's streams, held against the truth."""
