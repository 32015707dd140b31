"""Packed folders: a directory tree in one `.ffr` file, and its safe unpacking.

folder.py       the files of a tree as samples, found by their paths
folder_pack.py  a tree into one file
member_file.py  one member as a Python file
safe_unpack.py  members into a new directory, and nowhere else
"""
