"""Reads a recorded drive with rosbags and prints one JSON object a message; mcap checks the file's checksums.

usage: read_drive.py FILE.mcap

Clouds are taken apart with numpy by the fields that the message names; columns are told by their checksums.
"""

import json
import sys
import zlib
from pathlib import Path

import numpy as np
from mcap.reader import make_reader
from rosbags.rosbag2.storage_mcap import McapReader
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

NUMPY = {1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 8: "<f8"}


def stamp(header):
    return header.stamp.sec * 10**9 + header.stamp.nanosec


def vector(value):
    return [value.x, value.y, value.z]


def turn(value):
    return [value.x, value.y, value.z, value.w]


def cloud(message):
    fields = {f.name: (f.offset, NUMPY[f.datatype]) for f in message.fields}
    kind = np.dtype(
        {
            "names": list(fields),
            "offsets": [offset for offset, _ in fields.values()],
            "formats": [kind for _, kind in fields.values()],
            "itemsize": message.point_step,
        }
    )
    points = np.frombuffer(message.data.tobytes(), kind)
    assert len(points) == message.width * message.height
    return {
        "stamp": stamp(message.header),
        "frame": message.header.frame_id,
        "points": len(points),
        "point_step": message.point_step,
        "fields": {name: [offset, kind] for name, (offset, kind) in fields.items()},
        "columns": {name: zlib.crc32(np.ascontiguousarray(points[name]).tobytes()) for name in fields},
    }


def transforms(message):
    return {
        "transforms": [
            {
                "stamp": stamp(t.header),
                "parent": t.header.frame_id,
                "child": t.child_frame_id,
                "translation": vector(t.transform.translation),
                "rotation": turn(t.transform.rotation),
            }
            for t in message.transforms
        ]
    }


def odometry(message):
    return {
        "stamp": stamp(message.header),
        "frame": message.header.frame_id,
        "child": message.child_frame_id,
        "position": vector(message.pose.pose.position),
        "orientation": turn(message.pose.pose.orientation),
        "speed": message.twist.twist.linear.x,
        "turn": message.twist.twist.angular.z,
    }


def objects(message):
    return {
        "stamp": stamp(message.header),
        "frame": message.header.frame_id,
        "objects": [
            {
                "label": o.classification[0].label,
                "position": vector(o.kinematics.pose_with_covariance.pose.position),
                "orientation": turn(o.kinematics.pose_with_covariance.pose.orientation),
                "size": vector(o.shape.dimensions),
                "speed": o.kinematics.twist_with_covariance.twist.linear.x,
            }
            for o in message.objects
        ],
    }


def clock(message):
    return {"stamp": message.clock.sec * 10**9 + message.clock.nanosec}


def markers(message):
    return {
        "markers": [
            {
                "stamp": stamp(m.header),
                "frame": m.header.frame_id,
                "ns": m.ns,
                "id": m.id,
                "type": m.type,
                "action": m.action,
                "position": vector(m.pose.position),
                "orientation": turn(m.pose.orientation),
                "scale": vector(m.scale),
                "opacity": m.color.a,
                "text": m.text,
                "rest": len(m.points) + len(m.colors) + len(m.texture_resource) + len(m.texture.data)
                + len(m.uv_coordinates) + len(m.mesh_resource) + len(m.mesh_file.data)
                + m.frame_locked + m.mesh_use_embedded_materials,
            }
            for m in message.markers
        ]
    }


READ = {
    "sensor_msgs/msg/PointCloud2": cloud,
    "tf2_msgs/msg/TFMessage": transforms,
    "nav_msgs/msg/Odometry": odometry,
    "autoware_perception_msgs/msg/DetectedObjects": objects,
    "rosgraph_msgs/msg/Clock": clock,
    "visualization_msgs/msg/MarkerArray": markers,
}


def emit(topic, kind, log_time, content):
    print(json.dumps({"topic": topic, "type": kind, "log_time": log_time, **content}))


def main(path):
    reader = McapReader(Path(path))
    reader.open()
    store = get_typestore(Stores.EMPTY)
    published = get_typestore(Stores.ROS2_JAZZY)
    for connection in reader.connections:
        store.register(get_types_from_msg(connection.msgdef.data, connection.msgtype))
        # The definitions of the file are those of ROS 2, by the hash of their structure.
        if connection.msgtype in published.types:
            assert store.hash_rihs01(connection.msgtype) == published.hash_rihs01(connection.msgtype), connection
    for connection, log_time, data in reader.messages(reader.connections):
        message = store.deserialize_cdr(data, connection.msgtype)
        emit(connection.topic, connection.msgtype, log_time, READ[connection.msgtype](message))
    with open(path, "rb") as file:
        for _ in make_reader(file, validate_crcs=True).iter_messages():
            pass


main(sys.argv[1])
