"""Files: written whole or not at all (`atomic`), weights as safetensors (`tensors`), the folder of a model (`folder`).

Nothing is ever unpickled. May import: errors.
"""
