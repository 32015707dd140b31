"""RecordIO files of the PaddlePaddle family: read and written."""
