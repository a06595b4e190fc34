"""LMDB files of other tools, and the tree that packs have too."""
