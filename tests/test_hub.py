"""The model card is of the model at hand; the Hub gets and gives exactly three files, checked like any others."""

import sys
import types
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from primecast.errors import InputError
from primecast.forecasting.forecaster import Forecaster
from primecast.forecasting.hub import FILES, _hub, pull
from tests.test_forecaster import SMALL, waves


@pytest.fixture(scope="module")
def fitted() -> Forecaster:
    return Forecaster(**{**SMALL, "epochs": 1}).fit(waves())


def test_the_card_tells_data_dates_scores_intervals_versions_and_use(fitted: Forecaster, tmp_path: Path) -> None:
    fitted.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES)
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    for told in (
        "library_name: primecast",
        "Channels: lead, follow, noise.",
        "| train | 2024-03-01 00:00:00 | 2024-03-10 14:00:00 |",
        "| test | 2024-03-12 01:00:00 | 2024-03-14 18:00:00 |",
        f"| this model | {fitted.scores_.mse:.4f} | {fitted.scores_.mae:.4f} |",
        f"| last season repeated (24 steps) | {fitted.naive_scores_.mse:.4f} |",
        f"| 80 % | {100 * fitted.facts_['coverage']['80']:.1f} % |",
        "itransformer with prime-table attention",
        f"torch {fitted.facts_['versions']['torch']}",
        "It was not tested on other plants",
    ):
        assert told in card, told
    Forecaster.load(tmp_path).save(tmp_path / "again")
    assert (tmp_path / "again" / "README.md").read_text(encoding="utf-8") == card


class Hub(types.ModuleType):
    """A Hub in a folder, with the three calls of huggingface_hub that are used."""

    def __init__(self, root: Path) -> None:
        super().__init__("huggingface_hub")
        self.root = root
        self.calls: list[tuple[str, dict[str, Any]]] = []

        class HfHubHTTPError(Exception):
            pass

        class HFValidationError(ValueError):
            pass

        self.errors = types.SimpleNamespace(HfHubHTTPError=HfHubHTTPError, HFValidationError=HFValidationError)

    def HfApi(self) -> "Hub":
        return self

    def create_repo(self, repo_id: str, **options: Any) -> None:
        if "/" not in repo_id:
            raise self.errors.HFValidationError(f"bad name {repo_id}\nwith details")
        self.calls.append(("create_repo", options))

    def upload_folder(self, *, repo_id: str, folder_path: str, allow_patterns: list[str], **options: Any) -> str:
        target = self.root / repo_id
        target.mkdir(parents=True)
        for name in allow_patterns:
            (target / name).write_bytes((Path(folder_path) / name).read_bytes())
        return f"https://hub/{repo_id}/commit/1"

    def snapshot_download(self, repo_id: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        self.calls.append(("snapshot_download", {"revision": revision, "allow_patterns": allow_patterns}))
        if not (self.root / repo_id).is_dir():
            raise self.errors.HfHubHTTPError(f"404: no {repo_id}")
        return str(self.root / repo_id)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    stand_in = Hub(tmp_path / "hub")
    monkeypatch.setitem(sys.modules, "huggingface_hub", stand_in)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", stand_in.errors)
    return stand_in


def test_a_pushed_model_comes_back_the_same(fitted: Forecaster, hub: Hub) -> None:
    assert fitted.push_to_hub("me/plant") == "https://hub/me/plant/commit/1"
    assert hub.calls == [("create_repo", {"private": True, "exist_ok": True})]
    back = Forecaster.from_pretrained("me/plant", revision="abc")
    assert hub.calls[-1] == ("snapshot_download", {"revision": "abc", "allow_patterns": FILES})
    pd.testing.assert_frame_equal(back.predict(), fitted.predict())


def test_a_folder_needs_no_hub(fitted: Forecaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.delitem(sys.modules, "huggingface_hub.errors", raising=False)
    fitted.save(tmp_path / "model")
    pd.testing.assert_frame_equal(Forecaster.from_pretrained(tmp_path / "model").predict(), fitted.predict())
    with pytest.raises(InputError, match=r"needs huggingface_hub: pip install 'primecast\[hub\]'"):
        Forecaster.from_pretrained("me/plant")


def test_what_the_hub_refuses_is_one_sentence(fitted: Forecaster, hub: Hub) -> None:
    with pytest.raises(
        InputError, match=r"^there is no folder 'me/none', and it cannot be downloaded from the Hub: 404: no"
    ):
        Forecaster.from_pretrained("me/none")
    with pytest.raises(InputError, match=r"^cannot upload to 'plain': bad name plain$"):
        fitted.push_to_hub("plain")


def test_the_real_package_has_what_is_used() -> None:
    pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    hub = _hub()
    assert hub.errors.HfHubHTTPError and hub.errors.HFValidationError and hub.snapshot_download
    assert hub.HfApi().upload_folder and hub.HfApi().create_repo
    with pytest.raises(InputError, match="cannot be downloaded from the Hub"):
        pull("not a name/at all/here", revision=None)
