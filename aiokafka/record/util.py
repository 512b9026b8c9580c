"""Compatibility module, an import path of aiokafka 0.14: varints and the CRC-32C checksum."""

from aiokafka._upstream.records import *
