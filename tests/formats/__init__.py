"""Tests of `packer._formats`: the contract, which every format inherits, and each format against other programs."""

import pytest

pytest.register_assert_rewrite("packer.testing.conformance")
