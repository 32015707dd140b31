"""Inputs that datasets are written from: our own objects, tables, and the further formats that `convert` reads.

recognised.py     an object → its samples, if it is ours or a table
parts.py          stores, some of their samples, several of them: the record of each sample
selected.py       samples of such parts, by index
stores.py         samples of record stores, many at once
passthrough.py    records of `.ffr` files, copied unchanged, or with other fields for some columns
tables.py         rows of DataFrames, Arrow tables and dicts of columns
examples.py       examples of TFRecord files, by feature
huggingface.py    rows of Hugging Face datasets
rows.py           rows of Arrow tables → samples
arrow_types.py    types of Arrow → fields
arrow_values.py   values of Arrow columns
columns.py        a few samples → the columns
"""
