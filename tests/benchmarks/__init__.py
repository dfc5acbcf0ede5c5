"""Speed and memory, measured: ``make bench``.  Nothing here asserts a time; the tests see to it that the bench code works."""
