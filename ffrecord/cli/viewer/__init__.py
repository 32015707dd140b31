"""The page of `ffrecord view`.

    pictures.py   values that are pictures, as files that browsers show
    records.py    the columns of samples, each on its own, so that one that is damaged hides no other
    cells.py      what the page tells of a sample
    matching.py   what a filter asks for; matching.js is the same for a page without a server
    jobs.py       work in the background: filters, sizes, columns
    answers.py    what each address answers
    server.py     HTTP: who may ask, and how
    page.py       the page itself, of page.html, page.css and page.js, for the server or as one file

Whatever comes from a dataset goes to the page as JSON, which puts it into text nodes: nothing of it is ever HTML.
"""
