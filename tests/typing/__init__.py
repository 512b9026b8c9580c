"""What type checkers say of programs that use the library."""
