"""What every page is made of: the frame of the page, drawings as inline SVG, pictures as data addresses.

What one paper's page says is in that paper's room.
"""
