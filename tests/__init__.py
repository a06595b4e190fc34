"""The tests. pytest rewrites the assertions of the conformance suite too, so that failures show the values."""

import pytest

pytest.register_assert_rewrite("packer.testing.conformance")
