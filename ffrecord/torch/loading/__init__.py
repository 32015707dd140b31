"""What stands behind `ffrecord.torch.Loader`.

structure.py   the structure of samples, of which some columns are wanted
records.py     records as read: columns of fixed-size records, packed ones, plain bytes
ragged.py      values of varying shape: a list, a nested tensor, a padded one
columns.py     records -> the columns of a batch, or its samples
stacking.py    what a user's function made of samples -> a batch
functions.py   the user's functions, with or without seeds
mending.py     records that cannot be read or decoded: raise, leave out, replace
finishing.py   a read batch -> a finished one: all Python work
threads.py     finishing in threads, in order
options.py     the arguments that say how
processes.py   finishing in worker processes, through torch's own loader
placement.py   pinned memory, and copies to a GPU beside the computation
stats.py       where the time goes, and the verdict
iteration.py   one loop over an epoch, which joins them
"""
