"""What this library and others make of the same bytes, as a page: ``make conformance``."""
