"""The idea: attention with and without a primer, the primer, and the layers around them.

Start with `attention` (the formulas, then the module) and `primer` (where F_ij comes from). Everything here is tensors
in, tensors out; no channel has a name. May import: errors.
"""
