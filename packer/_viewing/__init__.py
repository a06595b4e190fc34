"""The viewer of packs in a browser, and reports as HTML pages."""
