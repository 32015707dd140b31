"""TFRecord files and tf.train.Example: read, streamed, written."""
