"""What a machine can know of the shape of the code: imports, sizes, repetition, words."""
