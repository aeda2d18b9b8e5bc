"""The parts of every page: its frame, drawings as inline SVG, pictures as data addresses.

What a page says is in its paper's room; of the main report, in `findings`.
"""
