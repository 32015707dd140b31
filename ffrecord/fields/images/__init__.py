"""Fields of images: lossless, JPEG, RGB; and the JPEG codec."""
