"""The attention module: four linear projections around a mechanism; a primer is handed to its `forward`.

Letters: b batch, h heads, i query token, j key token, d model width.
"""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from primecast.errors import InputError, check_known
from primecast.nn.attention import MODULATE, Prime
from primecast.nn.checks import PositionFn, check_tensor
from primecast.nn.mechanisms import MECHANISMS, AttentionArgs
from primecast.schema import checked


class MultiHeadAttention(nn.Module):
    """Projections around a mechanism; batch first, like nn.MultiheadAttention.

    d_model:   width of the tokens; n_heads must divide it.
    mechanism: a name in MECHANISMS, or a module that is called like them.
    dropout:   on the attention weights, in training only.
    modulate:  what a primer modulates: "k", "v" or "kv".
    bias:      whether the four projections have one.
    depth:     number of the layer, from 0, for mechanisms that change with it.
    zero_output: zero-initialized output projection, so that attention adds nothing at first: the control that shows
               what this start alone changes.

    Weights: `query`, `key`, `value`, `out`: Linear(d, d). A primer is an argument of `forward`, not a submodule: one
    primer serves all layers of a model.

    To observe the weights, hook `attention.mechanism.map`, or call `attention_weights`.
    """

    attends = True  # what `parameter_overhead` counts as attention

    @checked()
    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        mechanism: str | nn.Module = "dot",
        dropout: float = 0.0,
        modulate: str = "kv",
        bias: bool = True,
        depth: int = 0,
        zero_output: bool = False,
    ) -> None:
        super().__init__()
        if d_model % n_heads:
            raise InputError(f"d_model {d_model} cannot be divided into n_heads {n_heads} heads of equal size")
        if isinstance(mechanism, str):
            check_known("mechanism", mechanism, MECHANISMS)
            mechanism = MECHANISMS[mechanism](d_model, n_heads, depth=depth)
        check_known("modulate", modulate, MODULATE)
        self.d_model = d_model
        self.dropout = dropout
        self.modulate = modulate
        self.query = nn.Linear(d_model, d_model, bias=bias)
        self.key = nn.Linear(d_model, d_model, bias=bias)
        self.value = nn.Linear(d_model, d_model, bias=bias)
        self.mechanism = mechanism
        self.out = nn.Linear(d_model, d_model, bias=bias)
        if zero_output:
            for parameter in self.out.parameters():
                nn.init.zeros_(parameter)

    def extra_repr(self) -> str:
        return f"dropout={self.dropout}, modulate={self.modulate!r}"

    def forward(
        self,
        x: Float[Tensor, "b i d"],
        memory: Float[Tensor, "b j d"] | None = None,
        *,
        prime: Prime | Float[Tensor, "#b i j d"] | None = None,
        mask: Bool[Tensor, "#b #h i j"] | None = None,
        bias: Float[Tensor, "#b #h i j"] | None = None,
        position: PositionFn | None = None,
    ) -> Float[Tensor, "b i d"]:
        """Attend from the query tokens x to the key tokens `memory` (x itself when None)."""
        memory = x if memory is None else memory
        self._check_tokens(x, memory)
        args = AttentionArgs(prime, self.modulate, mask, bias, self.dropout if self.training else 0.0, position)
        return self.out(self.mechanism(self.query(x), self.key(memory), self.value(memory), x, args))

    def _check_tokens(self, x: Tensor, memory: Tensor) -> None:
        weight = self.query.weight
        like = weight if isinstance(weight, Tensor) else None  # of a quantized layer it is a method
        for name, tokens in (("x", x), ("memory", memory)):
            check_tensor(name, tokens, "(b, n, d)", like=like)
            if tokens.shape[2] != self.d_model:
                raise InputError(f"{name} has shape {tuple(tokens.shape)}; its width must be d_model, {self.d_model}")
        if memory.shape[0] != x.shape[0]:  # not len, which would be a constant of an exported program
            raise InputError(f"memory has shape {tuple(memory.shape)}; it must have the batch of x, {x.shape[0]}")
