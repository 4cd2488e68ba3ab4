"""What the package promises about its own shape: who may import whom, what importing costs, what is public."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import primecast

PACKAGE = Path(primecast.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))

# A module (or a folder, with a trailing dot) and what of primecast it may import. `errors` is free for all.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "dropout": set(),
    "blocked": {"dropout"},
    "attention": {"blocked", "dropout"},
    "losses": set(),
    "files": set(),
    "tensors": {"files"},
    "distributed": set(),
    "primers": {"attention"},
    "layers": {"attention", "primers", "dropout"},
    "models.": {"models.", "layers", "attention", "primers", "losses", "dropout"},
    "data.": {"data."},
    "resume": {"tensors", "distributed"},
    "progress": {"resume"},
    "identity": set(),
    "training": {"identity", "progress", "resume", "distributed"},
    "plots": set(),
    "intervals": set(),
    "backtest": set(),
    "statistics": {"files"},
    "store": {"files"},
    "engines": {"progress", "store"},
    "hub": {"tensors"},
    "saved": {"data.", "tensors"},
    "inside": {"attention", "primers", "training"},
    "relations": {"attention", "inside", "training"},
    "swap": {"attention", "primers", "dropout"},
    "export": {"data.", "files", "forecaster", "primers"},
    "probes": {"attention", "inside", "primers", "data."},
    "experiment": {"models.", "data.", "training", "losses", "primers", "engines", "store", "probes"},
    "studies.": {"studies.", "experiment", "statistics", "store", "files", "plots", "data."},
    "forecaster": {
        *("models.", "primers", "data.", "training", "losses", "tensors", "progress"),
        *("intervals", "backtest", "relations", "hub", "saved"),
    },
    "integrations.": {"data.", "models.", "forecaster"},
    "report": {"files"},
    "commands": {"data.", "experiment", "forecaster", "files", "intervals", "report"},
    "demo": {"forecaster", "models.", "data.", "files", "plots"},
    "cli": {
        *("demo", "experiment", "engines", "store", "studies.", "distributed", "commands"),
        *("attention", "primers", "losses", "models.", "data.", "training"),
    },
    "__main__": {"cli"},
}


def dotted(path: Path) -> str:
    name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    return name.removesuffix("__init__")


def imported(path: Path) -> set[str]:
    """The primecast modules a file imports anywhere, also inside functions."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("primecast"):
            module = (node.module or "").removeprefix("primecast").removeprefix(".")
            names |= {module} if module else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name.removeprefix("primecast.") for alias in node.names if "primecast" in alias.name}
    return names


def covered(name: str, allowed: set[str]) -> bool:
    return name == "errors" or any(name == a or (a.endswith(".") and (name + ".").startswith(a)) for a in allowed)


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_imports_point_downwards_only(path: Path) -> None:
    name = dotted(path)
    if name == "":  # the lazy front door names all of them
        return
    allowed = next(rules for key, rules in ALLOWED.items() if covered(name, {key}) or name == key)
    assert not {other for other in imported(path) if not covered(other, allowed)}


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_nothing_is_unpickled_evaluated_or_loaded_unsafely(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = {alias.name for alias in node.names} | {getattr(node, "module", None)}
            assert not modules & {"pickle", "joblib", "dill", "shelve", "marshal"}
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in {"torch.load", "eval", "exec"}
            if called in {"np.load", "numpy.load"}:
                assert "allow_pickle=False" in ast.unparse(node)


def test_no_room_without_a_name() -> None:
    assert not {path.stem for path in MODULES} & {"utils", "helpers", "common", "tools", "misc", "config"}


def test_models_read_no_configuration_namespace() -> None:
    for path in (PACKAGE / "models").glob("*.py"):
        names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
        assert not names & {"config", "configs", "args"}, path


def test_public_names_are_listed_once_and_exist() -> None:
    assert primecast.__all__ == sorted(primecast._HOME)
    for name in primecast.__all__:
        assert getattr(primecast, name) is not None
    assert set(primecast.__all__) < set(dir(primecast))
    assert primecast.__version__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = primecast.nothing  # type: ignore[attr-defined]


def test_importing_primecast_imports_nothing_heavy_and_takes_under_0_3_seconds() -> None:
    script = (
        "import sys, time; start = time.perf_counter(); import primecast; took = time.perf_counter() - start;"
        "heavy = {'torch', 'pandas', 'matplotlib', 'numpy', 'jaxtyping', 'rich', 'typer'} & set(sys.modules);"
        "print(took, sorted(heavy))"
    )
    best = min(
        (subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True) for _ in range(3)),
        key=lambda done: float(done.stdout.split()[0]),
    )
    took, heavy = best.stdout.split(maxsplit=1)
    assert heavy.strip() == "[]"
    assert float(took) < 0.3


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [("primecast.attention", "pandas"), ("primecast.primers", "pandas"), ("primecast.losses", "pandas"),
     ("primecast.plots", "torch"), ("primecast.cli", "torch"), ("primecast.store", "torch"),
     ("primecast.report", "torch"), ("primecast.statistics", "torch"), ("primecast.commands", "pandas")],
)  # fmt: skip
def test_a_module_does_not_bring_what_it_need_not(module: str, unwanted: str) -> None:
    script = f"import sys, {module}; print({unwanted!r} in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_types_are_shipped() -> None:
    assert (PACKAGE / "py.typed").exists()
