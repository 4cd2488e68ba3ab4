"""Dropout from sixteen random bits an entry.

torch draws 24 or 53 random bits for every entry; on one CPU thread that costs more than the attention it drops from
(docs/decisions.md). Sixteen bits are enough: one 64-bit draw serves four entries. The rate is rounded to 1/65536, and
what is kept is scaled by the fraction really kept, so the mean is exact.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int16
from torch import Tensor, nn

from primecast.errors import InputError


def random_bits(*shape: int, device: torch.device) -> Int16[Tensor, "..."]:
    """Return sixteen random bits for each entry, from torch's own generator."""
    entries = torch.Size(shape).numel()
    bits = torch.empty((entries + 3) // 4, dtype=torch.int64, device=device).random_(-(2**63), None)
    return bits.view(torch.int16)[:entries].view(shape)


def keep_factor(bits: Int16[Tensor, "..."], rate: float, dtype: torch.dtype) -> Float[Tensor, "..."]:
    """Return what each entry is multiplied with: 0 where it is dropped, 1 / (1 - rate) where it is kept."""
    kept = round((1 - rate) * 2**16)
    if kept == 0:
        return torch.zeros(bits.shape, dtype=dtype, device=bits.device)
    factor = torch.empty(bits.shape, dtype=dtype, device=bits.device)
    torch.le(bits, kept - 1 - 2**15, out=factor)  # `lt` would need a number beyond sixteen bits
    return factor.mul_(2**16 / kept)


def drop(x: Float[Tensor, "..."], rate: float) -> Float[Tensor, "..."]:
    """Return x with a fraction of its entries set to zero and the others scaled up; nothing is drawn at rate 0."""
    if rate == 0:
        return x
    if is_traced():  # a compiler mistakes the size of bits viewed as another type; vmap draws by torch's functions only
        return F.dropout(x, rate)
    return x * keep_factor(random_bits(*x.shape, device=x.device), rate, x.dtype)


def is_traced() -> bool:
    """Return whether torch compiles, exports or transforms (torch.func) what it runs.

    Then all must be made of torch's own differentiable functions.
    """
    # torch.func has no public test of whether a transform is active (torch 2.13), hence the private one.
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


class Dropout(nn.Module):
    """`drop` in training, the identity otherwise."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        if not 0 <= rate <= 1:
            raise InputError(f"dropout is {rate}; it must be between 0 and 1")
        self.rate = rate

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return drop(x, self.rate) if self.training else x

    def extra_repr(self) -> str:
        return f"rate={self.rate}"
