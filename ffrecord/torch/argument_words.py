"""Wrong words for arguments, and the right ones."""

__all__ = ["DATASET_WORDS", "LOADER_WORDS", "SAMPLER_WORDS"]

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
    **dict.fromkeys(("decoder", "decode_on", "decode_device"), "decode_with, together with device"),
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
