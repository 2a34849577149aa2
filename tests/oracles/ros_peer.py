"""A node of rmw_zenoh written with eclipse-zenoh and rosbags alone.

    ros_peer.py listen PORT DOMAIN TOPIC TYPE COUNT    prints a line of JSON a sample, then what the graph holds
    ros_peer.py talk PORT DOMAIN TOPIC latched|volatile    publishes three std_msgs/String, then stays

Both connect to tcp/127.0.0.1:PORT.
"""

import json
import struct
import sys
import time

import xxhash
import zenoh
import zenoh.ext
from rosbags.typesys import Stores, get_typestore

STORE = get_typestore(Stores.ROS2_JAZZY)


def open_session(port):
    config = zenoh.Config()
    config.insert_json5("mode", '"peer"')
    config.insert_json5("connect/endpoints", json.dumps([f"tcp/127.0.0.1:{port}"]))
    config.insert_json5("listen/endpoints", '["tcp/127.0.0.1:0"]')
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5("timestamping/enabled", "true")
    return zenoh.open(config)


def dds_name(type_name):
    package, kind, name = type_name.split("/")
    return f"{package}::{kind}::dds_::{name}_"


def key_of(domain, topic, type_name):
    digest = STORE.hash_rihs01(type_name)
    return f"{domain}/{topic.strip('/')}/{dds_name(type_name)}/{digest}"


def token_of(session, domain, kind, topic, type_name, qos):
    digest = STORE.hash_rihs01(type_name)
    mangled = topic.replace("/", "%")
    zid = str(session.info.zid())
    return f"@ros2_lv/{domain}/{zid}/0/1/{kind}/%/%/peer/{mangled}/{dds_name(type_name)}/{digest}/{qos}"


def describe(token):
    parts = token.split("/")
    line = {"node": (parts[7] + "%" + parts[8]).replace("%", "/").replace("//", "/"), "kind": parts[5]}
    if parts[5] != "NN":
        package, kind, _, name = parts[10].split("::")
        type_name = f"{package}/{kind}/{name[:-1]}"
        line["topic"] = parts[9].replace("%", "/")
        line["type"] = type_name
        line["hash_is_right"] = parts[11] == STORE.hash_rihs01(type_name)
        line["qos"] = parts[12]
    return line


def listen(port, domain, topic, type_name, count):
    session = open_session(port)
    samples = []
    subscriber = session.declare_subscriber(key_of(domain, topic, type_name), samples.append)
    token = session.liveliness().declare_token(token_of(session, domain, "MS", topic, type_name, "::,10:,:,:,,"))
    deadline = time.monotonic() + 30
    while len(samples) < count and time.monotonic() < deadline:
        time.sleep(0.01)
    tokens = [str(reply.ok.key_expr) for reply in session.liveliness().get(f"@ros2_lv/{domain}/**") if reply.ok]
    for sample in samples[:count]:
        attachment = sample.attachment.to_bytes()
        sequence, source_time_ns, length = struct.unpack("<qqB", attachment[:17])
        assert (len(attachment), length) == (33, 16), attachment
        owners = [
            token for token in tokens if xxhash.xxh3_128_digest(token.encode())[::-1] == attachment[17:]
        ]
        payload = sample.payload.to_bytes()
        assert payload[:4] == b"\x00\x01\x00\x00", payload[:4]
        message = STORE.deserialize_cdr(payload, type_name)
        print(
            json.dumps(
                {
                    "sequence": sequence,
                    "source_time_ns": source_time_ns,
                    "gid_is_of_token": owners[0] if owners else None,
                    "width": message.width,
                    "stamp": [message.header.stamp.sec, message.header.stamp.nanosec],
                    "frame_id": message.header.frame_id,
                    "data_sum": int(message.data.sum(dtype="uint64")),
                }
            ),
            flush=True,
        )
    print(json.dumps({"graph": [describe(token) for token in tokens]}), flush=True)
    del subscriber, token
    session.close()


def talk(port, domain, topic, durability):
    session = open_session(port)
    type_name = "std_msgs/msg/String"
    latched = durability == "latched"
    token_key = token_of(session, domain, "MP", topic, type_name, ":1:,1:,:,:,," if latched else "::,1:,:,:,,")
    key = key_of(domain, topic, type_name)
    if latched:
        publisher = zenoh.ext.declare_advanced_publisher(
            session,
            key,
            cache=zenoh.ext.CacheConfig(max_samples=1),
            publisher_detection=True,
            sample_miss_detection=zenoh.ext.MissDetectionConfig(sporadic_heartbeat=0.5),
        )
    else:
        publisher = session.declare_publisher(key)
    token = session.liveliness().declare_token(token_key)
    deadline = time.monotonic() + 30
    while not latched and not publisher.matching_status.matching and time.monotonic() < deadline:
        time.sleep(0.01)
    gid = xxhash.xxh3_128_digest(token_key.encode())[::-1]
    message_type = STORE.types[type_name]
    for i in range(3):
        payload = bytes(STORE.serialize_cdr(message_type(data=f"message {i}"), type_name))
        attachment = struct.pack("<qqB", i + 1, time.time_ns(), 16) + gid
        publisher.put(payload, attachment=attachment)
    print(json.dumps({"published": 3}), flush=True)
    time.sleep(60)
    del token


if __name__ == "__main__":
    action, port, domain, topic = sys.argv[1:5]
    if action == "listen":
        listen(port, domain, topic, sys.argv[5], int(sys.argv[6]))
    else:
        talk(port, domain, topic, sys.argv[5])
