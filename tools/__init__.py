"""Scripts of the build and of releases."""
