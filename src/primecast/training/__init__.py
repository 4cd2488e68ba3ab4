"""The only loops: `loop` trains, predicts and evaluates, given a model, windows and a loss, none of them by name.

`settings` checks and describes what `fit` is given, `optimizer` has Adam and the schedules, `device` devices and
precisions, `checkpoint` makes a run resumable, `distributed` is for torchrun, `progress` shows how far a run is.
May import: data, nn, storage, errors.
"""
