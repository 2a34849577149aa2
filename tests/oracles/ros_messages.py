"""Makes random ROS 2 messages with rosbags.

ros_messages.py TYPE DEFINITION_FILE COUNT SEED: COUNT lines of JSON, each
  {"fields": the message by field names, "little": its CDR in hex, "big": the same, big-endian}.

DEFINITION_FILE holds the `ros2msg` text. Floats in JSON are the 16 hex digits of the float64; byte arrays are hex.
"""

import json
import random
import struct
import sys

import numpy as np
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosbags.interfaces import Nodetype

kind, path, count, seed = sys.argv[1:5]
store = get_typestore(Stores.EMPTY)
with open(path) as file:
    store.register(get_types_from_msg(file.read(), kind))

# rosbags writes a `byte` as a signed number.
INTEGERS = {"byte": (0, 2**7)}
INTEGERS |= {"int8": (-(2**7), 2**7), "uint8": (0, 2**8), "int16": (-(2**15), 2**15), "uint16": (0, 2**16)}
INTEGERS |= {"int32": (-(2**31), 2**31), "uint32": (0, 2**32), "int64": (-(2**63), 2**63), "uint64": (0, 2**64)}


def primitive(name):
    if name == "bool":
        return random.random() < 0.5
    if name == "string":
        return "".join(random.choice("abz/_é雨") for _ in range(random.choice([0, 1, 2, 3, 4, 5, 9])))
    if name == "float64":
        bits = random.getrandbits(64) & ~(1 << 62) if random.random() < 0.9 else random.choice([0, 1, 0x7FF << 52])
        return struct.unpack("<d", struct.pack("<Q", bits))[0]
    if name == "float32":
        return struct.unpack("<f", struct.pack("<I", random.getrandbits(32) & ~(1 << 30)))[0]
    low, high = INTEGERS[name]
    return random.choice([low, high - 1, random.randrange(low, high)])


def value(node):
    tag, what = node
    if tag == Nodetype.NAME:
        return message(what)
    if tag == Nodetype.BASE:
        return primitive(what[0])
    element, count = what
    if tag == Nodetype.SEQUENCE:
        count = random.choice([0, 1, 2, 3, 5, 17])
    values = [value(element) for _ in range(count)]
    if element[0] == Nodetype.BASE and element[1][0] != "string":
        return np.array(values, dtype=element[1][0])
    return values


def message(name):
    fields = store.fielddefs[name][1]
    return store.types[name](**{field: value(node) for field, node in fields})


def plain(x):
    if isinstance(x, (bool, np.bool_)):
        return bool(x)
    if isinstance(x, (float, np.floating)):
        return struct.pack(">d", float(x)).hex()
    if isinstance(x, (int, np.integer)):
        return int(x)
    if isinstance(x, str):
        return x
    if isinstance(x, np.ndarray) and x.dtype == np.uint8:
        return x.tobytes().hex()
    if isinstance(x, (list, np.ndarray)):
        return [plain(item) for item in x]
    return {name: plain(getattr(x, name)) for name, _ in store.fielddefs[x.__msgtype__][1]}


random.seed(int(seed))
for _ in range(int(count)):
    made = message(kind)
    little, big = (bytes(store.serialize_cdr(made, kind, little_endian=order)) for order in (True, False))
    print(json.dumps({"fields": plain(made), "little": little.hex(), "big": big.hex()}))
