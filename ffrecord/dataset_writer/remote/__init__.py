"""Datasets written to a URL: objects in the store, shards staged on this machine, uploads.

target.py   a URL that is written: checks, shards, uploads
objects.py  shards, manifest and marker below the URL
staging.py  the directory of this machine where shards are made
uploads.py  threads that upload finished shards
"""
