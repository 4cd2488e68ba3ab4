"""The only loops: `loop` trains, evaluates and predicts; `checkpoint` makes a run resumable.

It is given a model, windows and a loss, and knows none of them by name. `distributed` is for torchrun, `progress` for
people who wait. May import: data, nn, storage, errors.
"""
