"""Import path of aiokafka: iteration over the batches of a record set."""

from aiokafka._upstream.records import *
