"""Checks of tensors that meet in an attention: their types, shapes and devices alone, which cost no time.

Values are not read. Letters: b batch, h heads, i query token, j key token, k head size.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from primecast.errors import InputError, show

PositionFn = Callable[[Tensor], Tensor]
"""A function of queries and of (primed) keys along their token axis, the last but one: a rotary embedding."""


def check_inputs(
    q: Tensor,
    k: Tensor,
    v: Tensor | None = None,
    *,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    position: PositionFn | None = None,
) -> None:
    """Refuse tensors that are no queries, keys, values, mask and bias of one attention."""
    check_tensor("q", q, "(b, h, i, k)")
    check_tensor("k", k, "(b, h, j, k)", like=q)
    if 0 in (q.shape[1], q.shape[3]):
        raise InputError(f"q has shape {tuple(q.shape)}; it must have at least one head, and numbers in it")
    if (*k.shape[:2], k.shape[3]) != (*q.shape[:2], q.shape[3]):
        raise InputError(f"k has shape {tuple(k.shape)}; with q of shape {tuple(q.shape)} it must be (b, h, j, k)")
    if v is not None:
        check_tensor("v", v, "(b, h, j, k)", like=q)
        if v.shape != k.shape:
            raise InputError(f"v has shape {tuple(v.shape)}; it must be that of k, {tuple(k.shape)}")
    if mask is not None:
        check_mask(mask)
        _check_map("mask", mask, q, k)
    if bias is not None:
        check_tensor("bias", bias, None)
        _check_map("bias", bias, q, k)
    if position is not None and not callable(position):
        raise InputError(f"position is {show(position)}; it must be a function of queries and of keys, or None")


def check_tensor(name: str, x: Tensor, axes: str | None, *, like: Tensor | None = None) -> None:
    """Refuse what is no tensor of floating-point numbers with these axes, or of another type or device than `like`."""
    if not isinstance(x, Tensor):
        raise InputError(f"{name} is {show(x)}; it must be a tensor{f' of shape {axes}' if axes else ''}")
    if axes is not None and x.ndim != axes.count(",") + 1:
        raise InputError(f"{name} has shape {tuple(x.shape)}; it must be {axes}")
    if x.layout != torch.strided:
        raise InputError(f"{name} is of layout {x.layout}; it must be a dense tensor, {name}.to_dense()")
    if not x.is_floating_point():
        raise InputError(f"{name} is of {x.dtype}; it must be of a floating-point type")
    if like is not None and x.device != like.device:
        raise InputError(f"{name} is on {x.device}; it must be on {like.device}, as what it meets is")
    if like is not None and x.dtype != like.dtype and not torch.is_autocast_enabled(x.device.type):
        raise InputError(f"{name} is of {x.dtype}; it must be of {like.dtype}, as what it meets is")


def check_mask(mask: Tensor) -> None:
    """Refuse numbers: torch's attention would add them, which is what `bias` is for here."""
    kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
    if kind != torch.bool:
        raise InputError(f"the mask is of {kind}; it must be of torch.bool, True where i may attend to j; see bias")


def _check_map(name: str, x: Tensor, q: Tensor, k: Tensor) -> None:
    """Refuse a mask or bias that does not broadcast to the pairs, or that is on another device."""
    shape = (*q.shape[:3], k.shape[2])
    there = zip(x.shape, shape[4 - x.ndim :], strict=True) if 2 <= x.ndim <= 4 else ()
    if not 2 <= x.ndim <= 4 or any(size not in (1, wanted) for size, wanted in there):
        raise InputError(
            f"{name} has shape {tuple(x.shape)}; it must be (b, h, i, j) = {tuple(shape)}, or 1 in the place of b and h"
        )
    if x.device != q.device:
        raise InputError(f"{name} is on {x.device}; it must be on {q.device}, as q is")


def checked_position(position: PositionFn | None) -> PositionFn:
    """Return the function itself, held to the shape of what it is given; the identity where there is none."""
    if position is None:
        return identity

    def rotate(x: Tensor) -> Tensor:
        rotated = position(x)
        check_tensor("what position returned", rotated, None, like=x)
        if rotated.shape != x.shape:
            raise InputError(f"position returned shape {tuple(rotated.shape)}; it must keep {tuple(x.shape)}")
        return rotated

    return rotate


def identity(x: Tensor) -> Tensor:
    return x
