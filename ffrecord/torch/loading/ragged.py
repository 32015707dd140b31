"""Forms of a batch's column of values of varying shape."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import torch

from ffrecord.errors import ArgumentError, ArgumentTypeError

__all__ = [
    "RAGGED",
    "NamedForms",
    "Padded",
    "as_list",
    "form_rows",
    "is_named",
    "ragged_form",
    "stays_list",
    "to_one_dtype",
]

RAGGED = ("list", "nested", "padded")

Form = Callable[[str, list[torch.Tensor]], Any]


class Padded(NamedTuple):
    """Tensors of different shapes in one, filled up with zeros.

    Attributes:
        values: [k, longest, …], of their dtype; value i is `values[i, :lengths[i]]`.
        lengths: int64 [k] if one axis can vary; else int64 [k, axes], one number for each axis of a value.
    """

    values: torch.Tensor
    lengths: torch.Tensor

    @property
    def mask(self) -> torch.Tensor:
        """True for the items that are there, False for zeros that fill up: bool, of the shape of `values` in the axes
        that `lengths` counts.
        """
        lengths = self.lengths if self.lengths.dim() > 1 else self.lengths[:, None]
        found = torch.ones(len(lengths), dtype=torch.bool, device=self.values.device)
        for axis in range(lengths.shape[1]):
            places = torch.arange(self.values.shape[axis + 1], device=self.values.device)
            inside = places < lengths[:, axis : axis + 1]
            found = found[..., None] & inside.reshape(len(lengths), *[1] * axis, -1)
        return found

    def to(self, *args: Any, **kwargs: Any) -> "Padded":
        """Return the same on another device or of another dtype; the arguments are those of `torch.Tensor.to`.

        Only `values` get another dtype.
        """
        values = self.values.to(*args, **kwargs)
        return Padded(values, self.lengths.to(values.device, non_blocking=kwargs.get("non_blocking", False)))

    def pin_memory(self) -> "Padded":
        """Return a copy in pinned memory."""
        return Padded(self.values.pin_memory(), self.lengths.pin_memory())


class NamedForms:
    """The forms of some columns, in every batch, even if all values of one have the same shape. Others are lists.

    Args:
        forms: name of a column → its form.
    """

    def __init__(self, forms: Mapping[str, Form]) -> None:
        self.forms = dict(forms)

    def __call__(self, column: str, tensors: list[torch.Tensor]) -> Any:
        return self.forms.get(column, as_list)(column, tensors)

    def check_names(self, known: Sequence[str]) -> None:
        """Raise ArgumentError if a column is none of these."""
        for name in self.forms:
            if name not in known:
                raise ArgumentError(f"ragged has {name!r}, expected some of the columns {', '.join(known)}")


def is_named(form: Form, column: str) -> bool:
    """Tell whether a column has its form in every batch."""
    return isinstance(form, NamedForms) and column in form.forms


def stays_list(form: Form, column: str) -> bool:
    """Tell whether tensors of varying shape stay a list."""
    return (form.forms.get(column, as_list) if isinstance(form, NamedForms) else form) is as_list


def form_rows(tensors: Sequence[torch.Tensor], form: Form, path: str) -> Any:
    """Return tensors in the form of their column. In a list, each has memory of its own."""
    return form(path, [tensor.clone() for tensor in tensors] if stays_list(form, path) else list(tensors))


def ragged_form(ragged: Any) -> Form:
    """Return the function that makes a column of k tensors; it also takes the column's name.

    Args:
        ragged: one of RAGGED, or a dict of column → one of them.

    Raises:
        ArgumentError: neither; or "nested", with a torch older than 2.2.
        ArgumentTypeError: a name of a column is not a str.
    """
    if isinstance(ragged, Mapping):
        for name in ragged:
            if not isinstance(name, str):
                raise ArgumentTypeError(f"ragged has {name!r}, expected names of columns")
        return NamedForms({name: _form_of(f"ragged[{name!r}]", each) for name, each in ragged.items()})
    return _form_of("ragged", ragged)


def _form_of(argument: str, name: Any) -> Form:
    if not isinstance(name, str) or name not in RAGGED:
        raise ArgumentError(f"{argument} is {name!r}, expected one of {', '.join(RAGGED)}")
    if name == "nested":
        if not hasattr(torch, "jagged"):
            raise ArgumentError(f"ragged='nested' needs torch 2.2 or newer, this is {torch.__version__}")
        _warn_now()
        return as_nested
    return as_padded if name == "padded" else as_list


def as_list(column: str, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors as they are."""
    return tensors


def _warn_now() -> None:
    """Let torch warn now, unseen, that nested tensors are a prototype.

    torch warns only once. Threads must not change warning filters, so the warning is not left to them.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.nested.nested_tensor([torch.zeros(1, device="cpu")], device="cpu")
        torch.nested.nested_tensor([torch.zeros(1, device="cpu")], device="cpu", layout=torch.jagged)


def as_nested(column: str, tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return the tensors as a nested one: jagged if they differ in their first axis only, else strided.

    Raises:
        ValueError: they differ in their number of axes, or torch refuses them.
    """
    _check_axes(column, tensors)
    shapes = {tensor.shape[1:] for tensor in tensors}
    jagged = tensors and tensors[0].dim() > 0 and len(shapes) == 1
    device = tensors[0].device if tensors else torch.device("cpu")
    try:
        return torch.nested.nested_tensor(tensors, device=device, layout=torch.jagged if jagged else torch.strided)
    except RuntimeError as error:
        raise ArgumentError(f"{column}: torch cannot make a nested tensor of these values: {error}") from error


def as_padded(column: str, tensors: list[torch.Tensor]) -> Padded:
    """Return the tensors in one, filled up with zeros.

    Raises:
        ValueError: they differ in their number of axes.
    """
    _check_axes(column, tensors)
    tensors = to_one_dtype(tensors)
    found = [tensor.shape for tensor in tensors]
    shapes = torch.tensor(found, dtype=torch.int64, device="cpu").reshape(len(tensors), -1)
    longest = shapes.max(0).values.tolist() if len(tensors) else []
    kind = (tensors[0].dtype, tensors[0].device) if tensors else (torch.uint8, torch.device("cpu"))
    values = torch.zeros((len(tensors), *longest), dtype=kind[0], device=kind[1])
    for row, tensor in zip(values, tensors, strict=True):
        row[tuple(map(slice, tensor.shape))] = tensor
    return Padded(values, shapes[:, 0] if shapes.shape[1] == 1 else shapes)


def to_one_dtype(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return tensors with the one dtype that holds the numbers of all: float64 if some are ints, and others floats.

    torch would take float32 of int64 and float32, and a tensor that takes others over rounds them to its own dtype.
    """
    kinds = {tensor.dtype for tensor in tensors if isinstance(tensor, torch.Tensor)}
    if len(kinds) < 2:
        return tensors
    kind = reduce(torch.promote_types, sorted(kinds, key=str))
    ints = any(each != torch.bool and not each.is_floating_point and not each.is_complex for each in kinds)
    if ints and (kind.is_floating_point or kind.is_complex):
        kind = torch.complex128 if kind.is_complex else torch.float64
    return [tensor.to(kind) for tensor in tensors]


def _check_axes(column: str, tensors: Sequence[torch.Tensor]) -> None:
    axes = sorted({tensor.dim() for tensor in tensors})
    if len(axes) > 1:
        raise ArgumentError(f"{column}: values of {axes[0]} and of {axes[-1]} axes in one batch need ragged='list'")
