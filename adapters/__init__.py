"""Places where people use the library: reinforcement-learning frameworks and the terminal.

Adapters may use the core and the transports; neither of those knows of any adapter.
"""
