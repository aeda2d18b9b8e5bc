"""The search page: what it answers (`app`), where it listens and to whom (`server`), what it compares (`sides`).

The page itself is index.html, page.css and page.js: nothing is fetched from anywhere else.
"""
