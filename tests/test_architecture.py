"""The shape of the package: who may import whom, what is public, what is forbidden, what importing costs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import primecast

PACKAGE = Path(primecast.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))

# The law of imports: a room may import itself and the rooms of the lines below its own, and what SIDEWAYS lists.
LAW = (
    {"cli", "integrations", "__main__"},
    {"reporting"},
    {"forecasting", "experiments"},  # neither knows the other
    {"analysis"},
    {"training"},
    {"models", "frames", "data"},
    {"nn"},
    {"plotting", "storage", "schema", "errors"},
)
SIDEWAYS = {("frames", "data"), ("plotting", "errors"), ("storage", "errors"), ("schema", "errors")}


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


def imported_rooms(path: Path) -> set[str]:
    """Return the rooms a file imports: at its top, inside functions, and by import_module("primecast...")."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names |= {ast.unparse(argument).strip("f'\"") for argument in node.args}
    return {name.split(".")[1] for name in names if name.startswith("primecast.")}


def allowed(room: str, other: str) -> bool:
    rank = {name: line for line, rooms in enumerate(LAW) for name in rooms}
    return room == other or rank[room] < rank[other] or (room, other) in SIDEWAYS


@pytest.mark.parametrize("path", [path for path in MODULES if path.parent != PACKAGE], ids=dotted)
def test_imports_point_downwards_only(path: Path) -> None:
    room = dotted(path).split(".")[0]
    assert {other for other in imported_rooms(path) if not allowed(room, other)} == set()


def test_every_room_says_what_lives_there_and_what_it_may_import() -> None:
    for init in PACKAGE.glob("*/__init__.py"):
        assert "May import" in (ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or ""), init


# ---------------------------------------------------------------- nothing is unpickled or evaluated

FORBIDDEN_MODULES = {"pickle", "cPickle", "joblib", "dill", "cloudpickle", "shelve", "marshal"}
FORBIDDEN_CALLS = {"torch.load", "torch.jit.load", "pd.read_pickle", "pandas.read_pickle", "eval", "exec", "__import__"}


def unsafe_reads(source: str) -> list[str]:
    """Return the imports and calls that could run code from a file."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            found += [name for name in names if name.split(".")[0] in FORBIDDEN_MODULES]
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
                found += [f"torch.{alias.name}" for alias in node.names if alias.name == "load"]
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            allow_pickle = {one.arg: ast.unparse(one.value) for one in node.keywords}.get("allow_pickle")
            if called in FORBIDDEN_CALLS or (called in ("np.load", "numpy.load") and allow_pickle != "False"):
                found.append(called)
    return found


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_nothing_is_unpickled_or_evaluated(path: Path) -> None:
    assert unsafe_reads(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle", "from joblib import load", "import os, dill", "torch.load(path)", "from torch import load",
        "eval(text)", "exec(text)", "np.load(path)", "np.load(path, allow_pickle=True)", "pd.read_pickle(path)",
    ],
)  # fmt: skip
def test_the_scan_finds_unsafe_reads_and_nothing_else(source: str) -> None:
    assert unsafe_reads(source)
    assert not unsafe_reads("model.eval(); np.load(path, allow_pickle=False); json.load(file)")


# ---------------------------------------------------------------- names and sizes


def test_modules_and_functions_stay_short() -> None:
    """At most 400 lines in a module and 60 in a function, signatures, docstrings and blank lines included."""
    long = []
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        sizes = {dotted(path): (text.count("\n"), 400)}
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                sizes[f"{dotted(path)}.{node.name}"] = ((node.end_lineno or 0) - node.lineno + 1, 60)
        long += [f"{name}: {lines} lines" for name, (lines, most) in sizes.items() if lines > most]
    assert long == []


def test_no_room_without_a_name() -> None:
    assert not {path.stem for path in MODULES} & {"utils", "helpers", "common", "tools", "misc", "config"}


def test_models_read_no_configuration_namespace() -> None:
    for path in (PACKAGE / "models").glob("*.py"):
        names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
        assert not names & {"config", "configs", "args"}, path


def test_public_names_are_listed_once_and_exist() -> None:
    assert primecast.__all__ == sorted(set(primecast.__all__))
    for name in primecast.__all__:
        assert getattr(primecast, name) is not None
    assert set(primecast.__all__) < set(dir(primecast))
    assert primecast.__version__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = primecast.nothing


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
    [("primecast.nn.attention", "pandas"), ("primecast.nn.primer", "pandas"), ("primecast.nn.losses", "pandas"),
     ("primecast.plotting.figures", "torch"), ("primecast.cli.app", "torch"), ("primecast.experiments.store", "torch"),
     ("primecast.reporting.render", "torch"), ("primecast.analysis.statistics", "torch"),
     ("primecast.cli.own_data", "pandas")],
)  # fmt: skip
def test_a_module_imports_no_heavy_package_it_does_not_need(module: str, unwanted: str) -> None:
    script = f"import sys, {module}; print({unwanted!r} in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_types_are_shipped() -> None:
    assert (PACKAGE / "py.typed").exists()
