"""Containers and their own tools: what a tool writes packer reads, and what packer writes the tool reads.

`scripts/interop` runs all of it in an environment of its own. A container is a module here, in which

``KIND``        is what the container is called
``WRITTEN_BY``  has, by a tool's name, a function that writes photos into a directory, and returns what packer reads
``READ_BY``     has, by a tool's name, a function that returns the photos in what packer wrote
``SUFFIX``      is the suffix by which packer writes the container; none where it does not
``KEYS``        are the keys that packer is told, if there are any
``LABELED``     is False where packer learns no labels, and ``NAMED`` where it learns no names
``name``        takes a name and returns what a container keeps of it, if that is not all
``IN_PLACE``    is False where the container cannot be indexed

A photo that a tool knows no name or label of has None there.
"""
