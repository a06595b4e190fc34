"""Packs of every format and codec as earlier versions wrote them: they must open for ever.

``python -m tests.golden`` writes the packs of the present schema, where they are missing; those of older schemas stay
as they are. ``samples.json`` says what is in them.
"""
