"""Speed and memory, measured by ``make bench``.  The tests here assert no time; they see to it that the code works."""
