"""The batch engine: it reads the records of a batch and checks them. Only creating arrays needs the GIL.

_engine.pyx        what Python calls: files, batches, forms of results
requests.pxi       structures that the parts share: files, requests, results
descriptors.pxi    open files of a reader
spans.pxi          tables of spans that are stored in arrays
plan.pxi           plan: indices → requests, sorted by place
policy.pxi         read: the choice of one of the five ways, per file system
read_cached.pxi    through the page cache
read_copied.pxi    out of mappings that windows.pxi keeps
read_direct.pxi    around the page cache
read_parallel.pxi  by many threads
read_mapped.pxi    in place
readahead.pxi      files that fit into memory, from start to end
verify.pxi         verify: the checksum of each record, right after its bytes arrive
columns.pxi        deliver: records → columns
reading.pxi        a planned batch in parts: read, verified, failures kept
read_at_once.pxi   the short way of one small cached record
"""
