"""Fields of images, lossless, JPEG and RGB, and the JPEG codec."""
