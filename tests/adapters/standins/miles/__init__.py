"""What ``ssefold.adapters.miles`` needs of miles, restated from its documented behaviour."""
