"""The tests; asserts of the conformance suite say what differs, as those of test modules do."""

import pytest

pytest.register_assert_rewrite("packer.testing.conformance")
