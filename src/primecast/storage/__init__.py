"""Files: written whole or not at all (`atomic`), weights as safetensors (`tensors`).

Nothing is ever unpickled. May import: errors.
"""
