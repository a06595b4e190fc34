"""The version of packer."""

__version__ = "0.1.0"
