"""A DDS peer that is not ours: Eclipse Cyclone DDS, with the names that ROS 2 gives to topics and types.

    dds_peer.py subscribe DOMAIN TOPIC QOS COUNT   prints what arrives, one JSON object a message
    dds_peer.py publish DOMAIN TOPIC QOS BYTES...  publishes one cloud of each size and prints the same of it
    dds_peer.py graph DOMAIN NODE                  prints NODE's entry of the ROS 2 graph once it has endpoints

QOS is `reliable`, `sensor` (best effort) or `latched`. Every command first prints the line `ready`, and waits for
its peer for a minute at most. Only loopback is used.
"""

import json
import os
import sys
import time
import zlib
from dataclasses import dataclass

import numpy as np

os.environ["CYCLONEDDS_URI"] = """<CycloneDDS><Domain>
<General><Interfaces><NetworkInterface name="lo" multicast="false"/></Interfaces></General>
<Discovery><ParticipantIndex>auto</ParticipantIndex><Peers><Peer address="127.0.0.1"/></Peers></Discovery>
</Domain></CycloneDDS>"""

from cyclonedds.core import Policy, Qos  # noqa: E402
from cyclonedds.domain import DomainParticipant  # noqa: E402
from cyclonedds.idl import IdlStruct  # noqa: E402
from cyclonedds.idl import types as t  # noqa: E402
from cyclonedds.idl.annotations import final  # noqa: E402
from cyclonedds.pub import DataWriter  # noqa: E402
from cyclonedds.sub import DataReader  # noqa: E402
from cyclonedds.topic import Topic  # noqa: E402
from cyclonedds.util import duration  # noqa: E402

PATIENCE_S = 60


@dataclass
@final
class Time(IdlStruct, typename="builtin_interfaces::msg::dds_::Time_"):
    sec: t.int32
    nanosec: t.uint32


@dataclass
@final
class Header(IdlStruct, typename="std_msgs::msg::dds_::Header_"):
    stamp: Time
    frame_id: str


@dataclass
@final
class PointField(IdlStruct, typename="sensor_msgs::msg::dds_::PointField_"):
    name: str
    offset: t.uint32
    datatype: t.uint8
    count: t.uint32


@dataclass
@final
class PointCloud2(IdlStruct, typename="sensor_msgs::msg::dds_::PointCloud2_"):
    header: Header
    height: t.uint32
    width: t.uint32
    fields: t.sequence[PointField]
    is_bigendian: bool
    point_step: t.uint32
    row_step: t.uint32
    data: t.sequence[t.uint8]
    is_dense: bool


@dataclass
@final
class Gid(IdlStruct, typename="rmw_dds_common::msg::dds_::Gid_"):
    data: t.array[t.uint8, 16]


@dataclass
@final
class NodeEntitiesInfo(IdlStruct, typename="rmw_dds_common::msg::dds_::NodeEntitiesInfo_"):
    node_namespace: str
    node_name: str
    reader_gid_seq: t.sequence[Gid]
    writer_gid_seq: t.sequence[Gid]


@dataclass
@final
class ParticipantEntitiesInfo(IdlStruct, typename="rmw_dds_common::msg::dds_::ParticipantEntitiesInfo_"):
    gid: Gid
    node_entities_info_seq: t.sequence[NodeEntitiesInfo]


def profile(name):
    reliable = Policy.Reliability.BestEffort if name == "sensor" else Policy.Reliability.Reliable(duration(seconds=10))
    durability = Policy.Durability.TransientLocal if name == "latched" else Policy.Durability.Volatile
    # Plain CDR, version 1, as ROS 2 has it.
    representation = Policy.DataRepresentation(use_cdrv0_representation=True)
    history = Policy.History.KeepLast(10)
    # As rmw_cyclonedds has it; by itself, DDS keeps one for those who come late.
    service = Policy.DurabilityService(0, history, -1, -1, -1)
    return Qos(reliable, durability, history, service, representation)


def said(cloud):
    """A cloud as both sides can say it."""
    return {
        "stamp_ns": cloud.header.stamp.sec * 10**9 + cloud.header.stamp.nanosec,
        "frame_id": cloud.header.frame_id,
        "height": cloud.height,
        "width": cloud.width,
        "fields": [[f.name, f.offset, f.datatype, f.count] for f in cloud.fields],
        "point_step": cloud.point_step,
        "row_step": cloud.row_step,
        "is_dense": bool(cloud.is_dense),
        "bytes": len(cloud.data),
        "crc32": zlib.crc32(bytes(cloud.data)),
    }


def take(reader, patience_s=PATIENCE_S):
    """Samples as they come."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        yield from (sample for sample in reader.take(N=16) if hasattr(sample, "__dataclass_fields__"))
        time.sleep(0.01)
    sys.exit("nothing arrived in time")


def subscribe(domain, topic, qos, count):
    participant = DomainParticipant(domain)
    reader = DataReader(participant, Topic(participant, topic, PointCloud2), profile(qos))
    print("ready", flush=True)
    for number, cloud in enumerate(take(reader), start=1):
        print(json.dumps(said(cloud)), flush=True)
        if number == count:
            # The other side may still wait for the acknowledgement of the last one.
            time.sleep(0.5)
            return


def publish(domain, topic, qos, sizes):
    participant = DomainParticipant(domain)
    writer = DataWriter(participant, Topic(participant, topic, PointCloud2), profile(qos))
    print("ready", flush=True)
    end = time.monotonic() + PATIENCE_S
    while qos != "latched" and writer.get_publication_matched_status().current_count == 0:
        if time.monotonic() > end:
            sys.exit("no subscription was found in time")
        time.sleep(0.01)
    rng = np.random.default_rng(7)
    for number, size in enumerate(sizes):
        width = size // 16
        fields = [PointField(name, 4 * i, 7, 1) for i, name in enumerate(["x", "y", "z", "intensity"])]
        points = rng.integers(0, 256, width * 16, dtype=np.uint8).tobytes()
        header = Header(Time(1_700_000_000 + number, 123_456_789), "lidar_top")
        cloud = PointCloud2(header, 1, width, fields, False, 16, width * 16, list(points), True)
        writer.write(cloud)
        print(json.dumps(said(cloud)), flush=True)
    # Until standard input ends, so that everything is delivered.
    sys.stdin.read()


def graph(domain, node):
    participant = DomainParticipant(domain)
    topic = Topic(participant, "ros_discovery_info", ParticipantEntitiesInfo)
    reader = DataReader(participant, topic, profile("latched"))
    print("ready", flush=True)
    for info in take(reader):
        for entry in info.node_entities_info_seq:
            if entry.node_name == node and entry.reader_gid_seq and entry.writer_gid_seq:
                prefix = bytes(info.gid.data)[:12]
                ours = [bytes(gid.data)[:12] == prefix for gid in [*entry.reader_gid_seq, *entry.writer_gid_seq]]
                print(
                    json.dumps(
                        {
                            "namespace": entry.node_namespace,
                            "name": entry.node_name,
                            "readers": len(entry.reader_gid_seq),
                            "writers": len(entry.writer_gid_seq),
                            "of_this_participant": all(ours),
                        }
                    ),
                    flush=True,
                )
                return


if __name__ == "__main__":
    command, domain, *rest = sys.argv[1:]
    if command == "subscribe":
        subscribe(int(domain), rest[0], rest[1], int(rest[2]))
    elif command == "publish":
        publish(int(domain), rest[0], rest[1], [int(size) for size in rest[2:]])
    elif command == "graph":
        graph(int(domain), rest[0])
    else:
        sys.exit(f"unknown command {command}")
