"""Whose state it is: models and losses in words that are the same in every process, by which a run knows its own."""

import hashlib
import re
from dataclasses import fields, is_dataclass
from functools import partial
from numbers import Number
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType

from torch import nn


def identity(value: object) -> str:
    """Of a module its class and settings, of a loss that is a function its name, or its code if it has none."""
    return _of_module(value) if isinstance(value, nn.Module) else _told(value)


def digest(*parts: str | bytes) -> str:
    return hashlib.sha256(b"\0".join(p.encode() if isinstance(p, str) else p for p in parts)).hexdigest()[:12]


def _of_module(module: nn.Module) -> str:
    """Its class, and a digest of its text and of all that its parts are set to beside their weights.

    None is not told: it may stand where a tensor will be kept.
    """
    traits = [
        f"{path}.{name}={told}"
        for path, part in module.named_modules()
        for name, value in sorted(vars(part).items())
        if name not in vars(nn.Module()) and value is not None and (told := _told(value))
    ]
    return f"{type(module).__name__}, {digest(_text(module), *traits)}"


def _text(value: object) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _told(value: object) -> str:
    """Plain values and functions in words that are the same in every process, which a repr with an address is not.

    A function is told by its name, and a lambda or a function inside of another, which has none of its own, by its
    code. Of what it reads from around it only plain values count: a container may be where it keeps its notes. Of
    tensors and other objects nothing is told, for they may change while training goes on.
    """
    match value:
        case None | Number() | str() | bytes():
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(filter(None, map(_told, value)))}]"
        case set() | frozenset():
            return f"{{{', '.join(sorted(filter(None, map(_told, value))))}}}"
        case dict():
            entries = {key: _told(entry) for key, entry in value.items()}
            return f"{{{', '.join(f'{_told(key)}: {entry}' for key, entry in entries.items() if entry)}}}"
        case partial():
            arguments = [_told(argument) or _text(argument) for argument in value.args]
            arguments += [f"{name}={_told(argument) or _text(argument)}" for name, argument in value.keywords.items()]
            return f"{_told(value.func)}({', '.join(arguments)})"
        case MethodType():
            return f"{_told(value.__self__)}.{value.__name__}"
        case FunctionType() if "<" in value.__qualname__:
            around = [cell.cell_contents for cell in value.__closure__ or ()]
            plain = [p for p in around if p is not value and (isinstance(p, Number | str) or callable(p))]
            defaults = _told([value.__defaults__, value.__kwdefaults__])
            return f"{value.__qualname__}, {digest(_code(value.__code__), defaults, *map(_told, plain))}"
        case FunctionType() | BuiltinFunctionType() | type():
            return value.__qualname__
        case _ if is_dataclass(value):  # settings, as a rule
            shown = {part.name: getattr(value, part.name) for part in fields(value) if part.repr}
            return f"{type(value).__qualname__}{_told(shown)}"
        case _:
            return type(value).__qualname__ if callable(value) else ""


def _code(code: CodeType) -> str:
    """Instructions, names and constants; where it stands in a file is no part of it."""
    constants = [_code(value) if isinstance(value, CodeType) else _told(value) for value in code.co_consts]
    return digest(code.co_code, *code.co_names, *constants)
