"""Without its package an integration says in one sentence what to install. Runs everywhere."""

import importlib
import sys

import pytest


@pytest.mark.parametrize("name", ["neuralforecast", "sktime"])
def test_a_missing_package_is_named_with_the_extra_that_has_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"primecast.integrations.{name}", raising=False)
    with pytest.raises(ImportError, match=rf"needs {name}, which is not installed: pip install 'primecast\[{name}\]'"):
        importlib.import_module(f"primecast.integrations.{name}")
