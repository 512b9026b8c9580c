"""Import path of aiokafka: the batches of a record set, one by one."""

from aiokafka._upstream.records import *
