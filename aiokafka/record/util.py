"""Import path of aiokafka: numbers of variable length, and a checksum."""

from aiokafka._upstream.records import *
