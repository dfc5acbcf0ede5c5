"""Limits of one response: above what any server sends, and far below what would exhaust a machine's memory.

Numbers only; code that adds an output or a token checks them first.
"""

#: Outputs in one response (prompts of a batch times ``n``).
MAX_OUTPUTS = 2**16
#: Tokens of one output: more than any model's context.
MAX_TOKENS = 2**24
