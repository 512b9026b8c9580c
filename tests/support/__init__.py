"""What tests of several folders share: helpers and fixtures, no tests."""
