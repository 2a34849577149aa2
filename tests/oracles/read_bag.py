"""Reads one bag file with an independent reader and prints one JSON object a message.

usage: read_bag.py mcap FILE.mcap | sqlite FILE.db3 | rosbags FILE.mcap | folder DIR | topics DIR
       read_bag.py channels FILE.mcap

`rosbags` decodes images with the definitions that the file itself carries; `folder` reads a whole bag by its
metadata.yaml, compression included; `topics` prints one line a topic instead: definition, type hash, offered QoS;
`channels` prints what an MCAP file says of its channels, and its metadata records.
"""

import json
import sqlite3
import sys
import zlib
from pathlib import Path


def emit(topic, kind, log_time, data, **more):
    checksum = zlib.crc32(data)
    line = {"topic": topic, "type": kind, "log_time": log_time, "crc32": checksum, "size": len(data)}
    print(json.dumps({**line, **more}))


def read_mcap(path):
    from mcap.reader import make_reader

    with open(path, "rb") as file:
        for schema, channel, message in make_reader(file, validate_crcs=True).iter_messages():
            emit(
                channel.topic,
                schema.name if schema else "",
                message.log_time,
                message.data,
                publish_time=message.publish_time,
                encoding=channel.message_encoding,
                schema_encoding=schema.encoding if schema else "",
                json=json.loads(message.data) if channel.message_encoding == "json" else None,
            )


def read_sqlite(path):
    rows = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True).execute(
        "SELECT name, type, timestamp, data FROM messages JOIN topics ON topic_id = topics.id"
        " ORDER BY timestamp, messages.id"
    )
    for name, kind, timestamp, data in rows:
        emit(name, kind, timestamp, data)


def read_rosbags(path):
    from rosbags.rosbag2.storage_mcap import McapReader
    from rosbags.typesys import get_types_from_msg, get_typestore, Stores

    reader = McapReader(Path(path))
    reader.open()
    store = get_typestore(Stores.EMPTY)
    for connection in reader.connections:
        if "json" not in connection.msgdef.format.name.lower() and connection.msgdef.data:
            store.register(get_types_from_msg(connection.msgdef.data, connection.msgtype))
    for connection, log_time, data in reader.messages(reader.connections):
        message = store.deserialize_cdr(data, connection.msgtype)
        pixels = message.data.tobytes()
        more = {
            "stamp": message.header.stamp.sec * 10**9 + message.header.stamp.nanosec,
            "frame_id": message.header.frame_id,
            "payload_crc32": zlib.crc32(pixels),
        }
        for name in ("height", "width", "encoding", "step", "format"):
            if hasattr(message, name):
                more[name] = getattr(message, name)
        emit(connection.topic, connection.msgtype, log_time, bytes(data), **more)


def read_folder(path):
    from rosbags.rosbag2 import Reader

    with Reader(Path(path)) as reader:
        for connection, log_time, data in reader.messages():
            emit(connection.topic, connection.msgtype, log_time, bytes(data))


def read_channels(path):
    from mcap.reader import make_reader

    with open(path, "rb") as file:
        reader = make_reader(file, validate_crcs=True)
        header, summary = reader.get_header(), reader.get_summary()
        for channel in summary.channels.values():
            schema = summary.schemas[channel.schema_id]
            line = {"topic": channel.topic, "metadata": channel.metadata, "schema": schema.name}
            line |= {"schema_encoding": schema.encoding, "definition": schema.data.decode()}
            print(json.dumps({**line, "profile": header.profile, "chunks": len(summary.chunk_indexes)}))
        for record in reader.iter_metadata():
            print(json.dumps({"record": record.name, "metadata": record.metadata}))


def read_topics(path):
    from rosbags.rosbag2 import Reader

    with Reader(Path(path)) as reader:
        for connection in reader.connections:
            profiles = [
                [p.reliability.name, p.durability.name, p.history.name, p.depth]
                for p in connection.ext.offered_qos_profiles
            ]
            print(
                json.dumps(
                    {
                        "topic": connection.topic,
                        "type": connection.msgtype,
                        "messages": connection.msgcount,
                        "hash": connection.digest,
                        "format": connection.msgdef.format.name,
                        "definition": connection.msgdef.data,
                        "qos": profiles,
                    }
                )
            )


if __name__ == "__main__":
    readers = {
        "mcap": read_mcap,
        "sqlite": read_sqlite,
        "rosbags": read_rosbags,
        "folder": read_folder,
        "topics": read_topics,
        "channels": read_channels,
    }
    readers[sys.argv[1]](sys.argv[2])
