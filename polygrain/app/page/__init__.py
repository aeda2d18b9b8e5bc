"""The search page: what it answers (`app`), to whom (`door`), where it listens (`server`), what it compares (`sides`).

The page itself is index.html, page.css and page.js: nothing is fetched from anywhere else.
"""
