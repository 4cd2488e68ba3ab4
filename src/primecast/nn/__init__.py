"""The idea: attention with and without a primer, the primer, and the layers around them.

Read `attention` (the formulas), `primer` (where F_ij comes from), `pair_features` (what is known of a pair), then
`mechanisms` and `multi_head`. Everything here is tensors in, tensors out; no channel has a name. May import: errors.
"""
