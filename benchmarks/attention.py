"""Cost of prime attention compared with standard attention: core, memory, pair features.

    python benchmarks/attention.py                                  # all parts, the whole grid
    python benchmarks/attention.py --part core --n 25 137 --d 128   # some of it

core      forward + backward of the attention alone, 8 heads: q, k, v and the primer's phi and gains are inputs, and
          all of them get a gradient. Heads have the memory layout that a layer's projections give.
memory    peak memory of the same, in fresh processes (see measure.py).
features  from windows (b, n, 96) to phi with 16 hidden units, full features, forward + backward to the parameters;
          compared with scaled_dot_product_attention alone and with the whole layer with its four projections.

Contenders: "sdpa" is torch's scaled_dot_product_attention with the kernel torch chooses; "materialised" builds F from
phi and gains and applies the paper's formula, "F given" does not include building F; "dense r" has r hidden units
shared by all heads, "rho m" has m units per head.

Letters: b batch, n tokens, d width, k head size.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

import measure
from measure import HERE, Others, Rows, time_interleaved
from primecast.models.presets import published
from primecast.nn.attention import Prime, attend
from primecast.nn.multi_head import MultiHeadAttention
from primecast.nn.primer import Primer

HEADS, LOOKBACK, UNITS = 8, 96, 16
TOKENS, WIDTHS = (8, 25, 137, 321, 862, 2048), (128, 256, 512)
SETS = {8: "Exchange", 25: "Weather", 137: "Solar-Energy", 321: "ECL", 862: "Traffic"}
"""Tokens -> the data set whose batch size in the paper is used; Weather has 21 channels and 4 time features. Else 1."""

BAR_SHAPES = ((2, 321, 512), (1, 862, 128))
"""b, n, d of the bars on dense primers and on features."""
FEATURE_SHAPES = ((128, 11, 256), (128, 25, 128), (4, 137, 128), *BAR_SHAPES)

DENSE = {"dense 4": 4, "dense 16": 16}
GROUPED = {"rho 1": 1, "rho 2": 2, "rho 4": 4}
MATERIALISED = ("materialised", "materialised, F given")
CONTENDERS = ("sdpa", *GROUPED, *DENSE, *MATERIALISED)
QUICK_CONTENDERS = ("sdpa", "rho 1", "rho 2", "dense 16", "materialised")

FILTERS_AT_MOST = 2**29
"""Largest F in bytes for which the materialised form is run: it holds more than ten tensors of that size."""


@dataclass(frozen=True)
class Shape:
    b: int
    n: int
    d: int

    @property
    def filters(self) -> int:
        """Return the bytes of F in float32."""
        return 4 * self.b * self.n**2 * self.d


def grid(tokens: Sequence[int], widths: Sequence[int]) -> Iterator[Shape]:
    for n in tokens:
        batch = int(str(published("itransformer", SETS[n], 96, "paper").training["batch_size"])) if n in SETS else 1
        for d in widths:
            yield Shape(batch, n, d)


# ---------------------------------------------------------------- the contenders


def make_inputs(shape: Shape, what: str, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Return the input tensors of a contender and, as `up`, the gradient of its output."""
    generator = torch.Generator().manual_seed(0)

    def draw(*size: int, scale: float = 1.0) -> Tensor:
        return scale * torch.randn(*size, generator=generator, dtype=dtype)

    b, n, k = shape.b, shape.n, shape.d // HEADS
    found = {name: draw(b, n, HEADS, k).transpose(1, 2) for name in ("q", "k", "v", "up")}
    if what in GROUPED:
        found["phi"] = draw(b, HEADS, GROUPED[what], n, n)
        found["gains"] = draw(HEADS, GROUPED[what], k, scale=0.3)
    elif what != "sdpa":
        units = DENSE.get(what, UNITS)
        found["phi"] = draw(b, 1, units, n, n)
        found["gains"] = draw(HEADS, units, k, scale=0.3)
    if what == "materialised, F given":
        found["filters"] = Prime(found.pop("phi"), found.pop("gains")).materialize()
    return {name: value if name == "up" else value.requires_grad_() for name, value in found.items()}


def run(what: str, given: dict[str, Tensor]) -> tuple[Tensor, ...]:
    """Return output and gradients of one forward and backward pass."""
    q, k, v, up = given["q"], given["k"], given["v"], given["up"]
    if what == "sdpa":
        out = F.scaled_dot_product_attention(q, k, v)
    elif what == "materialised, F given":
        out = attend(q, k, v, prime=given["filters"])
    else:
        prime = Prime(given["phi"], given["gains"])
        out = attend(q, k, v, prime=prime.materialize() if what == "materialised" else prime)
    leaves = [value for name, value in given.items() if name != "up"]
    return out.detach(), *torch.autograd.grad(out, leaves, up)


def check() -> None:
    """Compare values and gradients of every contender with the paper's formula."""
    shape = Shape(3, 11, HEADS * 5)
    for what in (*GROUPED, *DENSE):
        for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-4)):
            given = make_inputs(shape, what, dtype)
            for fast, slow in zip(run(what, given), run("materialised", given), strict=True):
                torch.testing.assert_close(fast, slow, rtol=tolerance, atol=tolerance)
    given = make_inputs(shape, "sdpa", torch.float64)
    torch.testing.assert_close(
        run("sdpa", given)[0], attend(given["q"], given["k"], given["v"], prime=torch.ones(3, 11, 11, shape.d).double())
    )


# ---------------------------------------------------------------- core


def core(rows: Rows, arguments: argparse.Namespace) -> None:
    shapes = list(grid(arguments.n, arguments.d))
    shapes += [Shape(b, n, d) for b, n, d in BAR_SHAPES if arguments.bars or (n in arguments.n and d in arguments.d)]
    for shape in shapes:
        contenders = contenders_at(shape, QUICK_CONTENDERS if arguments.quick else CONTENDERS)
        case = vars(shape)
        if arguments.resume and rows.settled(*(f"{measure.case_id(case)} {what}" for what in contenders)):
            continue
        given = {what: make_inputs(shape, what) for what in contenders}
        with Others() as others:
            timings = time_interleaved(
                {what: _call(what, given[what]) for what in contenders}, seconds=arguments.seconds
            )
        rows.put_timings(timings, others, against="sdpa", **case)
        measure.show_timings(f"core, b {shape.b}, n {shape.n}, d {shape.d}; others {others.cores}", timings, "sdpa")


def contenders_at(shape: Shape, contenders: Sequence[str]) -> list[str]:
    """Return the contenders that fit into memory; at the largest size only one dense primer is timed."""
    large = set(MATERIALISED) if shape.filters > FILTERS_AT_MOST else set()
    slow = {"dense 4"} if shape.n > 1000 else set()
    return [what for what in contenders if what not in large | slow]


def _call(what: str, given: dict[str, Tensor]) -> Callable[[], object]:
    return lambda: run(what, given)


# ---------------------------------------------------------------- memory


def memory(rows: Rows, arguments: argparse.Namespace) -> None:
    """Measure with the allocator's defaults and with large blocks kept, which matters for large temporaries."""
    contenders = ("dense 16", "materialised") if arguments.quick else ("sdpa", "rho 2", "dense 16", "materialised")
    for shape, keep, what in product((Shape(*bar) for bar in BAR_SHAPES), (False, True), contenders):
        case = {**vars(shape), "keep_blocks": keep}
        name = f"{measure.case_id(case)} {what}"
        if arguments.resume and rows.settled(name):
            continue
        job = {**case, "what": what}
        with Others() as others:
            idle, busy = (
                measure.run_fresh(HERE / "attention.py", {**job, "passes": passes})["peak"] for passes in (0, 1)
            )
        rows.put(name, others, **job, bytes=busy - idle, of="resident memory of a fresh process, inputs not counted")
    table = [(row["n"], row["d"], row["keep_blocks"], row["what"], row["bytes"] / 2**20) for row in rows.rows.values()]
    header = ("n", "d", "large blocks kept", "what", "MiB")
    measure.show("peak memory of one forward and backward pass", header, table)


def memory_job(b: int, n: int, d: int, keep_blocks: bool, what: str, passes: int) -> dict[str, int]:
    """Run in a process of its own; a tiny pass first loads the libraries in either case."""
    measure.prepare_process(keep_blocks=keep_blocks)
    run(what, make_inputs(Shape(1, 2, HEADS), what))
    given = make_inputs(Shape(b, n, d), what)
    for _ in range(passes):
        run(what, given)
    return {"peak": measure.peak_bytes()}


# ---------------------------------------------------------------- features


def features(rows: Rows, arguments: argparse.Namespace) -> None:
    for shape in (Shape(*given) for given in (BAR_SHAPES if arguments.quick else FEATURE_SHAPES)):
        calls = feature_calls(shape)
        if arguments.resume and rows.settled(*(f"{measure.case_id(vars(shape))} {what}" for what in calls)):
            continue
        with Others() as others:
            timings = time_interleaved(calls, seconds=arguments.seconds)
        rows.put_timings(timings, others, against="sdpa", **vars(shape))
        measure.show_timings(f"features, b {shape.b}, n {shape.n}, d {shape.d}; others {others.cores}", timings, "sdpa")


def feature_calls(shape: Shape) -> dict[str, Callable[[], object]]:
    primer = Primer("full", length=LOOKBACK, d_model=shape.d, n_heads=HEADS, hidden=UNITS)
    first_layer = [parameter for name, parameter in primer.named_parameters() if name != "gains"]
    series = torch.randn(shape.b, shape.n, LOOKBACK).cumsum(-1)
    up = torch.randn_like(primer(series).phi)
    layer = MultiHeadAttention(shape.d, HEADS)
    tokens = torch.randn(shape.b, shape.n, shape.d, requires_grad=True)
    leaves = [tokens, *layer.parameters()]
    return {
        "sdpa": _call("sdpa", make_inputs(shape, "sdpa")),
        "layer with projections": lambda: torch.autograd.grad(layer(tokens), leaves, tokens.detach()),
        "features": lambda: torch.autograd.grad(primer(series).phi, first_layer, up),
    }


# ---------------------------------------------------------------- the command

PARTS = {"core": core, "memory": memory, "features": features}


def main() -> None:
    parser = measure.parser(__doc__, list(PARTS))
    parser.add_argument("--n", type=int, nargs="+", choices=TOKENS)
    parser.add_argument("--d", type=int, nargs="+", choices=WIDTHS)
    parser.add_argument("--seconds", type=float, help="of sampling per case")
    arguments = parser.parse_args()
    if arguments.job:
        print(json.dumps(memory_job(**json.loads(arguments.job))))
        return
    measure.prepare_process()
    arguments.bars = not (arguments.n or arguments.d)
    arguments.n = arguments.n or ((25, 137, 862) if arguments.quick else TOKENS)
    arguments.d = arguments.d or ((128,) if arguments.quick else WIDTHS)
    arguments.seconds = arguments.seconds or (3.0 if arguments.quick else 6.0)
    check()
    for part in arguments.parts:
        PARTS[part](Rows.open(measure.folder(arguments), part), arguments)


if __name__ == "__main__":
    main()
