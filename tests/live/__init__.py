"""Tests against a real SGLang server; see README.md.  Opt-in: all of them skip unless SSEFOLD_LIVE is set."""
