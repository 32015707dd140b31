"""Datasets that lie in object storage or behind HTTP. Imported only where a URL is given."""
