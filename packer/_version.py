"""The version of packer."""

__version__ = "0.2.0"
