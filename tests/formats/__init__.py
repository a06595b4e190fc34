"""Tests of `packer._formats`: the contract, which every format inherits, and each format against other programs."""
