"""Import path of aiokafka: what the key of a transaction's marker says."""

from aiokafka._upstream.records import *
