"""Containers and their own tools: what a tool writes packer reads, and what packer writes the tool reads.

`scripts/interop` runs all comparisons in an environment of its own. Each container has a module here, with

``KIND``        the container's name
``WRITTEN_BY``  for each tool, a function that writes photos into a directory and returns the path that packer reads
``READ_BY``     for each tool, a function that returns the photos in a file or directory that packer wrote
``SUFFIX``      the suffix for which packer writes the container; empty if it does not
``KEYS``        optional: the keys that packer gets
``LABELED``     False if packer finds no labels, and ``NAMED`` if it finds no names
``name``        optional: a function that returns a name as the container stores it
``IN_PLACE``    False if the container cannot be indexed

A photo has None as its name or label if the tool does not know it.
"""
