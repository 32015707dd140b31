"""Folders of images and lists of paths as datasets.

image_folder.py  a directory, with a subdirectory for each class or none
path_list.py     paths and labels
file_store.py    records that are whole files
"""
