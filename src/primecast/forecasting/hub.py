"""Saved models on the Hugging Face Hub.

A saved folder has the Hub's own layout, config.json, model.safetensors and README.md, so publishing is uploading it.
huggingface_hub is an extra; a downloaded folder goes through the same checks as any other.
"""

from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from primecast.errors import InputError
from primecast.storage.folder import CARD, CONFIG, WEIGHTS

FILES = [CONFIG, WEIGHTS, CARD]


def push(folder: Path, repo_id: str, *, private: bool) -> str:
    """Upload a saved folder and return the address of the commit."""
    hub = _hub()
    api = hub.HfApi()
    try:
        api.create_repo(repo_id, private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repo_id, folder_path=str(folder), allow_patterns=FILES, commit_message="Upload a primecast model"
        )
    except (hub.errors.HfHubHTTPError, hub.errors.HFValidationError, OSError) as error:
        raise InputError(f"cannot upload to {repo_id!r}: {_first_line(error)}") from error
    return str(commit)


def locate(name: Path | str, *, revision: str | None) -> Path:
    """Return the folder of this name or, where there is none, one that is downloaded from the Hub."""
    with suppress(OSError):  # of a name that no folder can have
        if Path(name).is_dir():
            return Path(name)
    return pull(str(name), revision=revision)


def pull(repo_id: str, *, revision: str | None) -> Path:
    """Download the three files of a model into the local cache and return their folder."""
    hub = _hub()
    try:
        return Path(hub.snapshot_download(repo_id, revision=revision, allow_patterns=FILES))
    except (hub.errors.HfHubHTTPError, hub.errors.HFValidationError, OSError, ValueError) as error:
        raise InputError(
            f"there is no folder {repo_id!r}, and it cannot be downloaded from the Hub: {_first_line(error)}"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _hub() -> Any:
    try:
        import_module("huggingface_hub.errors")  # not loaded by the package itself
        return import_module("huggingface_hub")
    except ImportError as error:
        raise InputError("the Hugging Face Hub needs huggingface_hub: pip install 'primecast[hub]'") from error
