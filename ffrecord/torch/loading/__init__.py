"""The parts of `ffrecord.torch.Loader`.

records.py          records as read: columns of fixed-size records, packed records, plain bytes
ragged.py           values of varying shape: a list, a nested tensor, a padded tensor
columns.py          records -> the columns of a batch, or its samples
decoded_columns.py  records of any store -> the columns of a batch, or its samples
python_store.py     samples that Python makes, as a store; the columns of any store
nested.py           columns inside of nested samples
opening.py          whatever a loader is given -> a store, and its samples
class_names.py      whether joined datasets name their classes alike
stacking.py         samples that a user's function returned -> a batch
functions.py        the user's functions, with or without seeds
bad_records.py      records that cannot be read or decoded: raise, leave out, replace
batch_builder.py    a batch as read -> a finished batch: all Python work
forecasting.py      telling a reader which samples come next
threads.py          building of batches in threads, in order
processes.py        building of batches in worker processes, through torch's own loader
sampled.py          the order of a sampler: of the user, or of this package, which a loader takes over
labels.py           the classes of all samples
options.py          the arguments of a loader, checked
placement.py        pinned memory, and copies to a GPU beside the computation
stats.py            the time of each stage, and the verdict
trace.py            the time of each stage of each batch, for Perfetto
iteration.py        one loop over an epoch, which joins them
"""
