"""Hashes (RIHS01) of message definitions by rosbags, and those that recorders of ROS 2 wrote into bags.

definitions.py known FILE: FILE holds a JSON list of [TYPE, TEXT]; for each a line of JSON,
  [hash by the text, hash of rosbags' own definition or null].
definitions.py bags FOLDER: a line of JSON for every definition in .mcap and .db3 files under FOLDER,
  {"type": ..., "text": ..., "recorded": hash in the bag or null, "rosbags": hash by the text or null}.
"""

import json
import pathlib
import sqlite3
import sys

from mcap.reader import make_reader
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

STANDARD = get_typestore(Stores.ROS2_JAZZY)


def long_name(kind):
    return kind if kind.count("/") == 2 else kind.replace("/", "/msg/")


def hash_by_text(kind, text):
    kind = long_name(kind)
    store = get_typestore(Stores.EMPTY)
    store.register(get_types_from_msg(text, kind))
    return store.hash_rihs01(kind)


def in_mcap(path):
    with open(path, "rb") as file:
        summary = make_reader(file).get_summary()
    if summary is None:
        return
    for channel in summary.channels.values():
        schema = summary.schemas.get(channel.schema_id)
        if schema and schema.encoding == "ros2msg":
            yield schema.name, schema.data.decode(), channel.metadata.get("topic_type_hash") or None


def in_db3(path):
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    query = "SELECT topic_type, encoding, encoded_message_definition, type_description_hash FROM message_definitions"
    for kind, encoding, text, recorded in connection.execute(query).fetchall():
        if encoding == "ros2msg":
            yield kind, text, recorded or None


if sys.argv[1] == "known":
    with open(sys.argv[2]) as file:
        for kind, text in json.load(file):
            own = STANDARD.hash_rihs01(kind) if kind in STANDARD.types else None
            print(json.dumps([hash_by_text(kind, text), own]))
else:
    lines = set()
    for path in sorted(pathlib.Path(sys.argv[2]).rglob("*")):
        readers = {".mcap": in_mcap, ".db3": in_db3}
        if path.suffix not in readers:
            continue
        try:
            found = list(readers[path.suffix](path))
        except Exception as error:  # Damaged files, and bags older than definitions.
            print(f"{path}: {error}", file=sys.stderr)
            continue
        for kind, text, recorded in found:
            try:
                by_text = hash_by_text(kind, text)
            except Exception:  # Services, for one.
                by_text = None
            lines.add(json.dumps({"type": kind, "text": text, "recorded": recorded, "rosbags": by_text}))
    print("\n".join(sorted(lines)))
