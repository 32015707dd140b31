"""Wrong words for arguments, and the right ones."""

import functools
import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

from ffrecord.errors import ArgumentTypeError

__all__ = ["DATASET_WORDS", "LOADER_WORDS", "SAMPLER_WORDS", "suggest_words"]

Init = TypeVar("Init", bound=Callable[..., None])

# Words of other packages → the word here, or what to do.
SAMPLE_WORDS = {
    "columns": "fields",
    "augment": "transform",
    "target_transform": "transform, which gets the whole sample",
    "cache": "cache_dir",
}
DATASET_WORDS = SAMPLE_WORDS | dict.fromkeys(
    ("dataset", "path", "paths", "source", "reader"), "fnames, the first argument"
)
SAMPLER_WORDS = {
    "data_source": "dataset, the first argument",
    "sampler": "dataset, the first argument",
    "generator": "seed, an int",
    "world_size": "num_replicas",
    "weights": "order=ffrecord.order.Weighted(weights)",
    "replacement": "order=ffrecord.order.Weighted(weights)",
    "num_samples": "order=ffrecord.order.Weighted(weights, epoch_length=...)",
}
LOADER_WORDS = {
    **SAMPLE_WORDS,
    **dict.fromkeys(("fnames", "path", "paths", "source", "reader"), "dataset, the first argument"),
    "prefetch_factor": "prefetch, the number of batches of all workers together",
    "generator": "seed, an int",
    "pin_memory_device": "device",
    "in_order": "nothing: batches always come in order",
    "num_replicas": "world_size",
    "replacement": "weights",
    "num_samples": "order=ffrecord.order.Weighted(weights, epoch_length=...)",
    "workers": "num_workers",
    "threads": "num_threads",
    "drop": "policy",
    "label": "class_balanced, the column of the classes",
    "labels": "class_balanced, the column of the classes",
}


def suggest_words(words: Mapping[str, str]) -> Callable[[Init], Init]:
    """Return a decorator of `__init__` that names the right word for a keyword that it does not know.

    Args:
        words: wrong word → the right one, for words that are not spelt alike.
    """

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
    close = get_close_matches(word, [*known, *words], 1)
    if close:
        right = close[0]
        return (
            f"{name} has no argument {word!r}: {f'take {words[right]}' if right in words else f'do you mean {right}?'}"
        )
    return f"{name} has no argument {word!r}; it has {', '.join(known)}"
