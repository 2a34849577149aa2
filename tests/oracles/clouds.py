"""Makes random PointCloud2 messages with rosbags, and their columns with numpy.

clouds.py make COUNT SEED: COUNT lines of JSON. "cdr": the message in hex; "x", "y", "z", "intensity" as float32,
  "ring", "return_type" as whole numbers, "time" as nanoseconds after the stamp; null for a column that is not there.
  float32 columns are hex of their little-endian bytes.
clouds.py columns FILE: the columns of one message in that form, "cdr" left out.
"""

import json
import random
import sys
from fractions import Fraction

import numpy as np
from rosbags.typesys import Stores, get_typestore

KIND = "sensor_msgs/msg/PointCloud2"
TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}
store = get_typestore(Stores.ROS2_JAZZY)
types = store.types


def pick(names, weight=0.8):
    return random.choice(names) if random.random() < weight else None


def layout():
    """Field name, type number; in any order, with strangers among them."""
    fields = [(name, random.choice([7, 7, 7, 8])) for name in "xyz"]
    optional = [
        (pick(["intensity", "reflectivity"]), random.choice([2, 7, 4, 8, 6, 1, 3, 5])),
        (pick(["ring", "channel"]), random.choice([2, 4, 6, 1, 3, 5, 7, 8])),
        (pick(["t", "time", "timestamp", "time_stamp"]), random.choice([5, 6, 7, 8, 8])),
        (pick(["return_type"], 0.5), random.choice([2, 4, 1, 7])),
        (pick(["ambient"], 0.3), 4),
        (pick(["range", "rgb"], 0.3), random.choice([6, 7])),
        (pick(["normal_x"], 0.2), 8),
    ]
    fields += [field for field in optional if field[0]]
    random.shuffle(fields)
    return fields


def values(name, dtype, count, stamp):
    whole = dtype.kind in "iu"
    if name in "xyz":
        made = np.random.uniform(-120, 120, count)
        made[np.random.random(count) < 0.05] = np.nan
        made[np.random.random(count) < 0.02] = np.inf
        return made
    if name in ("t", "time", "timestamp", "time_stamp"):
        offsets = np.random.uniform(-0.02, 0.11, count)
        if whole:
            return (np.abs(offsets) * 1e9).astype("i8")
        if dtype.itemsize == 8 and random.random() < 0.7:
            day = stamp + offsets * 1e9
            return day / 1e9 if random.random() < 0.5 else day
        return offsets
    if name in ("ring", "channel", "return_type"):
        top = 127 if dtype.itemsize == 1 and dtype.kind == "i" else 255
        return np.random.randint(0, top + 1, count)
    if whole:
        info = np.iinfo(dtype)
        return np.random.randint(info.min, int(info.max) + 1, count, dtype="i8")
    return np.random.uniform(-1000, 1000, count)


def make():
    big = random.random() < 0.4
    height = random.choice([1, 1, 1, 2, 16])
    width = random.choice([0, 1, 2, 37, 600])
    stamp = random.randrange(1_500_000_000 * 10**9, 1_800_000_000 * 10**9)
    names, formats, offsets, at = [], [], [], random.choice([0, 0, 1, 4])
    fields = []
    for name, number in layout():
        dtype = np.dtype(TYPES[number]).newbyteorder(">" if big else "<")
        names.append(name)
        formats.append(dtype)
        offsets.append(at)
        count = random.choice([1, 1, 1, 0])
        fields.append(types["sensor_msgs/msg/PointField"](name=name, offset=at, datatype=number, count=count))
        at += dtype.itemsize + random.choice([0, 0, 0, 1, 3])
    step = at + random.choice([0, 0, 6])
    table = np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": step})
    points = np.zeros(height * width, table)
    for name, dtype in zip(names, formats):
        points[name] = values(name, dtype, len(points), stamp).astype(dtype)
    pad = random.choice([0, 0, 5]) if width else 0
    rows = np.frombuffer(points.tobytes(), np.uint8).reshape(height, width * step)
    data = np.concatenate([rows, np.full((height, pad), 0xA5, np.uint8)], axis=1).reshape(-1)
    if width == 0:
        data = np.zeros(0, np.uint8)
    row_step = width * step + pad
    if height == 1 and pad == 0 and random.random() < 0.2:
        row_step = 0
    time = types["builtin_interfaces/msg/Time"](sec=stamp // 10**9, nanosec=stamp % 10**9)
    return types[KIND](
        header=types["std_msgs/msg/Header"](stamp=time, frame_id="lidar"),
        height=height,
        width=width,
        fields=fields,
        is_bigendian=big,
        point_step=step,
        row_step=row_step,
        data=data,
        is_dense=random.random() < 0.5,
    )


def nanoseconds(column, stamp):
    if column.dtype.kind in "iu":
        return [int(value) for value in column]
    exact = [Fraction(float(value)) * 10**9 for value in column]
    readings = [exact]
    if column.dtype.itemsize == 8:
        readings += [[v - stamp for v in exact], [v / 10**9 - stamp for v in exact]]
    nearest = min(readings, key=lambda reading: max((abs(v) for v in reading), default=0))
    return [round(value) for value in nearest]


def columns(message):
    order = ">" if message.is_bigendian else "<"
    named = {field.name: field for field in message.fields}
    table = np.dtype({
        "names": list(named),
        "formats": [order + TYPES[field.datatype] for field in named.values()],
        "offsets": [field.offset for field in named.values()],
        "itemsize": message.point_step,
    })
    data = np.asarray(message.data).tobytes()
    width = message.width * message.point_step
    row_step = message.row_step or width
    points = np.concatenate(
        [np.frombuffer(data[row * row_step : row * row_step + width], table) for row in range(message.height)]
        or [np.zeros(0, table)]
    )
    stamp = message.header.stamp.sec * 10**9 + message.header.stamp.nanosec

    def of(*aliases):
        return next((points[name] for name in aliases if name in named), None)

    def floats(column):
        with np.errstate(over="ignore"):
            return None if column is None else column.astype("<f4").tobytes().hex()

    def whole(column):
        return None if column is None else [int(value) for value in column]

    time = of("t", "time", "timestamp", "time_stamp")
    return {
        **{name: floats(of(name)) for name in "xyz"},
        "intensity": floats(of("intensity", "reflectivity")),
        "ring": whole(of("ring", "channel")),
        "return_type": whole(of("return_type")),
        "time": None if time is None else nanoseconds(time, stamp),
    }


if sys.argv[1] == "make":
    random.seed(int(sys.argv[3]))
    np.random.seed(int(sys.argv[3]))
    for _ in range(int(sys.argv[2])):
        made = make()
        print(json.dumps({**columns(made), "cdr": bytes(store.serialize_cdr(made, KIND)).hex()}))
else:
    with open(sys.argv[2], "rb") as file:
        print(json.dumps(columns(store.deserialize_cdr(file.read(), KIND))))
