"""What people write datasets from: objects of ours, tables, and what `convert` reads besides.

recognise.py    an object → the samples that it has, if it is ours, a table, or Hugging Face's
parts.py        stores, some of their samples, several of them: which record each sample is, and samples by index
joins.py        samples of several of them and of others, one after the other or side by side
stores.py       samples of record stores, many at once; examples of TFRecord files by feature
passthrough.py  records of `.ffr` files, copied as they are, or with other fields for some columns
tables.py       rows of DataFrames, Arrow tables and dicts of columns
huggingface.py  rows of Hugging Face datasets
rows.py         rows by column → samples; the columns that Arrow's and Hugging Face's types are
arrow_types.py  the fields of Arrow's types; arrow_values.py: their values; arrow_memory.py: those read without Arrow
columns.py      a few samples → the columns
classes.py      names of classes, and their numbers in a source → names
"""
