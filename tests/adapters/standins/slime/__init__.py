"""What ``ssefold.adapters.slime`` needs of slime, restated from its documented behaviour, with NumPy for torch.

It checks what slime checks, with errors of the same types and key words, so that a sample that passes here passes
there.
"""
