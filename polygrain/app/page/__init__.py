"""The search page: its routes (`app`), its server (`server`), the collections that it compares (`sides`).

The page itself is index.html, page.css and page.js: nothing is fetched from anywhere else.
"""
