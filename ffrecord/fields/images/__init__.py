"""Fields of images: lossless, files of any format, JPEG and RGB; the values that they take, and their codecs."""
