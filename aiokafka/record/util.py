"""Import path of aiokafka: varints and the CRC-32C checksum."""

from aiokafka._upstream.records import *
