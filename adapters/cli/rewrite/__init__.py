"""``ssefold convert`` and ``anonymize``: the same answer written in another way."""
