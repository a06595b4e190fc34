"""Packs as pictures: in a browser, and on a page of its own."""
