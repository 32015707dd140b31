"""Fields of images: lossless, files of any format, JPEG and RGB; and their codecs."""
