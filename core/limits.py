"""How much one response may be: beyond any server, and far below what would fill a machine.

Numbers only; whoever adds an output or a token looks here first.
"""

#: Outputs in one response (prompts of a batch times ``n``).
MAX_OUTPUTS = 2**16
#: Tokens of one output: more than any model's context.
MAX_TOKENS = 2**24
