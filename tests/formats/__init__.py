"""Tests of `packer._formats`: the contract for every format, and each format against other programs."""
