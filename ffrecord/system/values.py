"""Values that users pass: checks, descriptions for messages, bytes; and tests for types of packages not imported."""

import functools
import operator
import os
import re
import sys
from collections.abc import Callable, Container, Iterator, Mapping
from types import FunctionType, MethodType
from typing import Any, TypeGuard, TypeVar

from ffrecord.errors import ArgumentError, ArgumentTypeError, describe_int

Init = TypeVar("Init", bound=Callable[..., None])

REPR_MAX = 60  # characters of a value in a message


def as_bytes(data: Any) -> memoryview:
    """Return all bytes of a buffer in C order as a 1-D view; copy only if they are not contiguous in that order.

    Args:
        data: any object with the buffer protocol, and arrays of any dtype, shape and strides.

    Raises:
        TypeError: `data` has no buffer, or is an array of Python objects.
    """
    if type(data) is bytes:
        return memoryview(data)  # most samples are: none of the checks below applies
    import numpy as np  # here, so that help and errors need no numpy

    if isinstance(data, np.ndarray):
        if data.dtype.hasobject:
            raise TypeError(f"an array of {data.dtype} holds Python objects, not bytes")
        # asarray drops subclasses: a matrix always stays 2-D, and a view of a masked array is masked.
        data = np.ascontiguousarray(np.asarray(data))
        return data.reshape(-1).view(np.uint8).data if data.size else memoryview(b"")
    try:
        view = memoryview(data)
    except TypeError:
        raise TypeError(describe_wrong("a sample", data, "an object with the buffer protocol")) from None
    if "O" in re.sub(":[^:]*:", "", view.format):  # without the names of fields, which may contain an O
        raise TypeError(f"a buffer of format {view.format!r} holds Python objects, not bytes")
    if view.nbytes == 0:
        return memoryview(b"")
    if not view.c_contiguous:
        return memoryview(view.tobytes())
    # numpy accepts every item format; memoryview.cast accepts only native ones.
    return np.frombuffer(view, np.uint8).data


def describe(value: Any) -> str:
    """Describe `value` in a few words, however large it is."""
    # Before int: bool is one.
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, class_of("numpy", "ndarray")):
        masked = "masked " if isinstance(value, class_of("numpy.ma", "MaskedArray")) else ""
        return with_article(f"{masked}{value.dtype} array of shape {value.shape}")
    if isinstance(value, class_of("numpy", "generic")):
        is_text = isinstance(value, class_of("numpy", "character"))
        shown = _short_repr(value.item()) if is_text else str(value)[:REPR_MAX]
        return f"numpy {type(value).__name__} {shown}"
    if is_tensor(value):
        if value.is_nested:
            return f"a nested torch {torch_dtype_name(value)} tensor"
        return f"a torch {torch_dtype_name(value)} tensor of shape {tuple(value.shape)}"
    if is_image(value):
        return f"a PIL image of mode {value.mode} and size {value.size}"
    if isinstance(value, int):
        # A huge int would take long to print.
        return describe_int(value) if value.bit_length() > 128 else f"int {value}"
    if isinstance(value, (str, float)):
        return f"{type(value).__name__} {_short_repr(value)}"
    if isinstance(value, (bytes, bytearray, dict, tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return _name_type(type(value))


def describe_type(value: Any) -> str:
    """Describe the type of a value that may be a secret, which no message may show."""
    return "None" if value is None else _name_type(type(value))


def describe_wrong(name: str, value: Any, expected: str, advice: str = "") -> str:
    """Return the sentence that says that a value is wrong. Every message about an argument has its form.

    Args:
        name: the argument, or the place of the value.
        value: the value, of any type and size.
        expected: the values that are allowed.
        advice: what to do about it; it follows after a semicolon.
    """
    return f"{name} is {describe(value)}, expected {expected}" + (f"; {advice}" if advice else "")


def whole_number(name: str, value: Any) -> int:
    """Return the int that an argument `name` has; other types than ints, and bools, are refused.

    Raises:
        ArgumentTypeError: it is not an int.
    """
    # `bool` is an `int` in Python; True as a seed is a mistake.
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ArgumentTypeError(describe_wrong(name, value, "an int"))
    try:
        return operator.index(value)
    except TypeError:  # arrays have the method, and refuse unless they are one int
        raise ArgumentTypeError(describe_wrong(name, value, "an int")) from None


def check_offsets(offsets: Any) -> Any:
    """Return the argument `offsets`, [k + 1] ints, as an array of any integer dtype. Its values are not checked.

    Raises:
        ArgumentTypeError: it is not a flat collection of ints.
    """
    import numpy as np  # here, so that help and errors need no numpy

    try:
        found = np.asarray(offsets)
    except ValueError:  # lists of different lengths
        raise ArgumentTypeError(describe_wrong("offsets", offsets, "ints [k + 1]")) from None
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise ArgumentTypeError(describe_wrong("offsets", found, "ints [k + 1]"))
    return found


def explain_surrogate(error: UnicodeEncodeError) -> str:
    """Return the sentence that says which character keeps a text from being stored."""
    return f"UTF-8 cannot encode character {error.start} of the text: {error.reason}"


def _name_type(kind: type) -> str:
    """Return the name of a type with its article; builtins are known without their module."""
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return with_article(name)


def with_article(noun: str) -> str:
    """Return a noun behind "a" or "an"; no name of a type or dtype has a u that sounds as in "under"."""
    return f"{'an' if noun[0].lower() in 'aeio' else 'a'} {noun}"


def _short_repr(value: Any) -> str:
    # Cut before `repr`, which would escape all of a long text.
    text = repr(value[:REPR_MAX] if isinstance(value, str) else value)
    return text if len(text) <= REPR_MAX else f"{text[:REPR_MAX]}…"


def is_tensor(value: Any) -> bool:
    """Tell whether `value` is a torch tensor, without importing torch."""
    return isinstance(value, class_of("torch", "Tensor"))


def torch_dtype_name(tensor: Any) -> str:
    """Return the name of a torch tensor's dtype, such as "bfloat16"."""
    return str(tensor.dtype).removeprefix("torch.")


def tensor_shape(tensor: Any) -> tuple[int, ...]:
    """Return the shape of a torch tensor.

    Raises:
        ValueError: the tensor is nested, so it has no shape.
    """
    if tensor.is_nested:
        raise ValueError("a nested tensor has no shape; store its parts, list(tensor.unbind())")
    return tuple(tensor.shape)


def is_image(value: Any) -> bool:
    """Tell whether `value` is a PIL image, without importing Pillow."""
    return isinstance(value, class_of("PIL.Image", "Image"))


def class_of(module: str, name: str) -> Any:
    """Return a class of a module that may not be imported, for `isinstance` and `is`.

    Without the class, the result is (), of which nothing is an instance: nobody can have made one. Another thread may
    be importing the module now, and the class not be there yet.
    """
    return getattr(sys.modules.get(module), name, ())


def iterator_of(name: str, value: Any, items: str) -> Iterator[Any]:
    """Return the iterator of a value. Ask for it once: some draw random numbers for it, or start processes.

    Args:
        name: the argument.
        value: the value, of any type.
        items: what it should give.

    Raises:
        ArgumentTypeError: the value is not iterable. Errors of its own `__iter__` stay as they are.
    """
    try:
        return iter(value)
    except TypeError as error:
        # Raised inside of `__iter__`: its own error says more.
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            raise
        raise ArgumentTypeError(describe_wrong(name, value, f"an iterable of {items}")) from None


def check_samples(name: str, value: Any) -> None:
    """Refuse values that are no collection of samples: a path; text or bytes, whose letters would be samples; a class
    or a function in place of its result; an array without axes; a loader that gives batches.

    Raises:
        ArgumentTypeError: it is one of these; the message says what to pass instead.
    """
    is_path = hasattr(value, "__fspath__") and not hasattr(value, "__getitem__")
    if is_path or isinstance(value, str | bytes | bytearray):
        advice = "of a path: pass ffrecord.open(path), or use ffrecord.convert(path, out)"
        raise ArgumentTypeError(describe_wrong(name, value, "samples", advice))
    if isinstance(value, type | FunctionType | MethodType):
        what, advice = ("class", "pass an object of it") if isinstance(value, type) else ("function", "pass its result")
        raise ArgumentTypeError(f"{name} is the {what} {value.__qualname__}, expected samples; {advice}")
    if (isinstance(value, class_of("numpy", "ndarray")) or is_tensor(value)) and value.ndim == 0:
        raise ArgumentTypeError(describe_wrong(name, value, "samples", "an array needs an axis of samples"))
    advice = _advise_on_batches(value)
    if advice:
        raise ArgumentTypeError(f"{name} is a {type(value).__name__} that gives batches, expected samples; {advice}")


def _advise_on_batches(value: Any) -> str:
    """Return what to pass instead of a loader, or of the iterator of one, that gives batches; "" for anything else."""
    if isinstance(value, class_of("ffrecord.torch", "Loader")):
        return "pass its dataset instead"
    if isinstance(value, class_of("torch.utils.data", "DataLoader")):
        return "" if value.batch_sampler is None else "pass its dataset instead, or make it with batch_size=None"
    if isinstance(value, class_of("torch.utils.data.dataloader", "_BaseDataLoaderIter")):
        together = getattr(value, "_auto_collation", False)
        return "pass the dataset of its DataLoader instead, or make that with batch_size=None" if together else ""
    if isinstance(value, class_of("ffrecord.torch.loading.iteration", "Iteration")):
        return "pass the dataset of its Loader instead"
    if isinstance(value, class_of("ffrecord.reading.prefetch", "Prefetcher")):
        return "pass the reader instead, or some of its samples as reader[start:stop]"
    return ""


def is_word(value: object, words: Container[str]) -> TypeGuard[str]:
    """Tell whether a value is one of some words. Comparing others, such as arrays, could fail."""
    return isinstance(value, str) and value in words


def check_flag(name: str, value: Any) -> bool:
    """Return the bool that an argument `name` has; other types are refused, because any text would be true.

    Raises:
        ArgumentTypeError: it is no bool of Python or numpy.
    """
    if not isinstance(value, bool) and not isinstance(value, class_of("numpy", "bool_")):
        raise ArgumentTypeError(describe_wrong(name, value, "True or False"))
    return bool(value)


def path_text(name: str, value: object, expected: str = "str or os.PathLike") -> str:
    """Return the path that an argument `name` has, as the system can take it.

    Args:
        name: the argument.
        value: the value, of any type.
        expected: the types that are allowed.

    Raises:
        ArgumentTypeError: it is no str, nor an os.PathLike of one.
        ArgumentError: it is empty, which would stand for the working directory; it begins with a home directory that
            only the shell expands, `~` or `~user`; or it fails `check_characters`.
    """
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(path, str):
        raise ArgumentTypeError(describe_wrong(name, value, expected))
    if not path:
        raise ArgumentError(describe_wrong(name, path, "a path"))
    if path[0] == "~":
        _refuse_home(name, path)
    return check_characters(name, path)


def _refuse_home(name: str, path: str) -> None:
    """Refuse a path such as "~/data". Python does not expand it, so that a directory called "~" would appear.

    What exists under that name is meant, such as a backup called "~old.ffr". A user of that name has to exist, too.

    Raises:
        ArgumentError: the message has the path to pass instead.
    """
    first = path.partition("/")[0]
    home = os.path.expanduser(path)
    if (first == "~" or home != path) and not os.path.lexists(first):
        instead = f"pass {home!r}" if home != path else "pass the whole path"
        raise ArgumentError(
            f"{name} is {path!r}, expected a path without ~, which only the shell expands: {instead}, or "
            f"{'./' + path!r} for a directory called {first!r}"
        )


def check_characters(name: str, path: str) -> str:
    """Return a path that the system can take.

    Raises:
        ValueError: it has a null character, or a part of a letter that no bytes stand for.
    """
    try:
        if "\0" not in path:
            os.fsencode(path)
            return path
    except UnicodeEncodeError:
        raise ArgumentError(f"{name} is {path!r}, expected a path without half letters (surrogates)") from None
    raise ArgumentError(f"{name} is {path!r}, expected a path without null characters")


def suggest_words(words: Mapping[str, str]) -> Callable[[Init], Init]:
    """Return a decorator of `__init__` that names the right word for a keyword that it does not know.

    Args:
        words: wrong word → the right one, for words that are not spelt alike.
    """
    import inspect  # here, as most modules need no signatures

    def decorate(init: Init) -> Init:
        known = [name for name in inspect.signature(init).parameters if name != "self"]
        owner = init.__qualname__.partition(".")[0]  # a subclass may have other arguments

        @functools.wraps(init)
        def checked(self: Any, *args: Any, **kwargs: Any) -> None:
            for word in kwargs:
                if word not in known:
                    raise ArgumentTypeError(_describe_word(owner, word, known, words))
            init(self, *args, **kwargs)

        return checked  # type: ignore[return-value]

    return decorate


def _describe_word(name: str, word: str, known: list[str], words: Mapping[str, str]) -> str:
    if word in words:
        return f"{name} has no argument {word!r}: take {words[word]}"
    from difflib import get_close_matches  # here, as only mistakes need it

    close = get_close_matches(word, [*known, *words], 1)
    if close:
        right = close[0]
        return (
            f"{name} has no argument {word!r}: {f'take {words[right]}' if right in words else f'do you mean {right}?'}"
        )
    return f"{name} has no argument {word!r}; it has {', '.join(known)}"
