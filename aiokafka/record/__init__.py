"""Records between bytes and objects: batches, message sets, columns, codecs. Pure, no I/O."""
