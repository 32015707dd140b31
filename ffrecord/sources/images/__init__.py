"""Folders of images and lists of paths as datasets."""
