"""The page of `ffrecord view`.

    records.py      columns of samples, each decoded by itself: one damaged column hides no other
    cells.py        a sample as text and numbers, for the grid and the panel
    values.py       one column of many samples, for filters
    matching.py     the filter; client.js has the same for a page without a server
    jobs.py         work in the background: filters, sizes, columns
    endpoints.py    the answer of each address
    server.py       HTTP: access control and headers
    page.py         the page itself, made of page.html, page.css and the scripts
    report.py       the page as one file without a server

Everything from a dataset goes to the page as JSON and ends in text nodes. It never becomes HTML.
"""
