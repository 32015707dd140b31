"""Whatever people have → a dataset of typed samples in `.ffr` shards.

conversion.py   convert: the one call
given.py        what a source is: samples by index, or one after the other
stores.py       samples of record stores, many at once
examples.py     of TFRecord files: examples by feature
parquet.py      rows of Parquet files
huggingface.py  rows of Hugging Face datasets
rows.py         rows by column → samples; the columns that Arrow's and Hugging Face's types are
columns.py      a few samples → the columns
verifying.py    source and result compared, sample by sample
"""

from ffrecord.convert.conversion import convert

__all__ = ["convert"]
