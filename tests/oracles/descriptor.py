"""Writes tensor descriptors and FP8 policies with the bytes that C lays them out in: descriptor.py COUNT SEED.

One JSON object a line, {"kind": .., "hex": .., fields}. Offsets are those that ctypes gives to the declared fields
(natural alignment), and struct with every gap spelled out must agree."""

import ctypes
import json
import random
import struct
import sys

u8, u16, u32, u64 = ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64


class Structure(ctypes.LittleEndianStructure):
    pass


class Shape(ctypes.Union):
    _fields_ = [("dims8", u16 * 8), ("dims4", u32 * 4), ("raw", u8 * 16)]


class Sbuf(Structure):
    _fields_ = [("address", u32), ("elements", u32), ("partitions", u8), ("reserved", u8 * 3), ("per_block", u32)]


class Hbm(Structure):
    _fields_ = [("address", u64), ("elements", u32), ("reserved", u32)]


class Storage(ctypes.Union):
    _fields_ = [("sbuf", Sbuf), ("hbm", Hbm), ("raw", u8 * 16)]


class ArgTensor(Structure):
    _fields_ = [
        ("location", u8),
        ("shape_type", u8),
        ("dtype", u8),
        ("reserved0", u8 * 5),
        ("shape", Shape),
        ("storage", Storage),
        ("reserved1", u8 * 8),
    ]


class UTensor(Structure):
    _fields_ = [("header", u8 * 8), ("tensor", ArgTensor)]


class Policy(Structure):
    _fields_ = [
        ("range_extension", ctypes.c_bool),
        ("emax_e4m3", u32),
        ("emax_e5m2", u32),
        ("ocp_sat", ctypes.c_bool),
        ("sis", ctypes.c_bool),
        ("sns", ctypes.c_bool),
    ]


assert (ctypes.sizeof(ArgTensor), ctypes.sizeof(UTensor), ctypes.sizeof(Policy)) == (48, 56, 16)
assert sys.byteorder == "little"
random.seed(int(sys.argv[2]))


def noise(count):
    return [random.randrange(256) for _ in range(count)]


def number(bits):
    return random.choice([0, 1, 2**bits - 1, random.randrange(2**bits), random.randrange(2 ** (bits // 2))])


def tensor():
    location, shape_type = random.randrange(3), random.randrange(3)
    dtype = random.choice([*range(23), *range(25, 32)])
    fields = {"location": location, "shape_type": shape_type, "dtype": dtype}
    fields |= {"reserved0": noise(5), "reserved1": noise(8)}
    made = ArgTensor(location, shape_type, dtype)
    made.reserved0[:], made.reserved1[:] = fields["reserved0"], fields["reserved1"]
    if shape_type == 0:
        fields["shape"] = [number(16) for _ in range(8)]
        made.shape.dims8[:] = fields["shape"]
        shape = struct.pack("<8H", *fields["shape"])
    elif shape_type == 2:
        fields["shape"] = [number(32) for _ in range(4)]
        made.shape.dims4[:] = fields["shape"]
        shape = struct.pack("<4I", *fields["shape"])
    else:
        fields["shape"] = noise(16)
        made.shape.raw[:] = fields["shape"]
        shape = bytes(fields["shape"])
    if location == 1:
        fields |= {"address": number(32), "elements": number(32), "partitions": number(8), "per_block": number(32)}
        fields["gap"] = noise(3)
        made.storage.sbuf = Sbuf(
            fields["address"], fields["elements"], fields["partitions"], (u8 * 3)(*fields["gap"]), fields["per_block"]
        )
        storage = struct.pack(
            "<IIB3sI",
            fields["address"],
            fields["elements"],
            fields["partitions"],
            bytes(fields["gap"]),
            fields["per_block"],
        )
    elif location == 2:
        fields |= {"address": number(64), "elements": number(32), "reserved": number(32)}
        made.storage.hbm = Hbm(fields["address"], fields["elements"], fields["reserved"])
        storage = struct.pack("<QII", fields["address"], fields["elements"], fields["reserved"])
    else:
        fields["storage"] = noise(16)
        made.storage.raw[:] = fields["storage"]
        storage = bytes(fields["storage"])
    packed = struct.pack(
        "<BBB5s16s16s8s",
        location,
        shape_type,
        dtype,
        bytes(fields["reserved0"]),
        shape,
        storage,
        bytes(fields["reserved1"]),
    )
    assert packed == bytes(made)
    return made, fields


def show(kind, made, fields):
    print(json.dumps({"kind": kind, "hex": bytes(made).hex()} | fields))


for _ in range(int(sys.argv[1])):
    made, fields = tensor()
    show("tensor", made, fields)

    made, fields = tensor()
    fields["header"] = noise(8)
    wrapped = UTensor((u8 * 8)(*fields["header"]), made)
    assert bytes(wrapped) == struct.pack("<8s48s", bytes(fields["header"]), bytes(made))
    assert bytes(wrapped)[10] == fields["dtype"]
    show("utensor", wrapped, fields)

    fields = {name: random.random() < 0.5 for name in ("range_extension", "ocp_sat", "sis", "sns")}
    fields |= {"emax_e4m3": number(32), "emax_e5m2": number(32)}
    policy = Policy(
        fields["range_extension"],
        fields["emax_e4m3"],
        fields["emax_e5m2"],
        fields["ocp_sat"],
        fields["sis"],
        fields["sns"],
    )
    spelled = struct.pack(
        "<?xxxII???x",
        fields["range_extension"],
        fields["emax_e4m3"],
        fields["emax_e5m2"],
        fields["ocp_sat"],
        fields["sis"],
        fields["sns"],
    )
    assert bytes(policy) == spelled
    show("policy", policy, fields)
