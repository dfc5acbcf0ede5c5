"""One output: a parsed chunk in, an update out."""
