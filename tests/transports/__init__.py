"""Every client stack against real servers on loopback."""
