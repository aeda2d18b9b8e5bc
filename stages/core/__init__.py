"""What stages share, in rooms. Below `runner` and `compute`, each room imports only rooms further down; a paper's room
imports no other paper's. A module that one paper uses lives in that paper's room.
"""
