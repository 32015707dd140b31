"""Datasets in object storage or behind HTTP. Imported only when a URL is given."""
