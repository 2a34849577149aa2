"""Connects to a Foxglove server as the viewer does, subscribes to every channel and prints each message as a JSON line,
decoded by the schema that the server sends. Ends when the server goes.

usage: foxglove_client.py URL [--stall]   (--stall: subscribes and reads no message)
"""

import base64
import json
import struct
import sys
import time

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.json_format import MessageToDict
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

TYPES = {1: "u1", 2: "i1", 3: "<u2", 4: "<i2", 5: "<u4", 6: "<i4", 7: "<f4", 8: "<f8"}


def decoder(channel):
    assert channel["encoding"] == "protobuf" and channel["schemaEncoding"] == "protobuf", channel
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(channel["schema"])).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(channel["schemaName"]))


def told(name, message):
    """What of a message is compared."""
    if name == "foxglove.PointCloud":
        fields = {f.name: (TYPES[f.type], f.offset) for f in message.fields}
        table = np.frombuffer(
            message.data,
            np.dtype(
                {
                    "names": list(fields),
                    "formats": [kind for kind, _ in fields.values()],
                    "offsets": [offset for _, offset in fields.values()],
                    "itemsize": message.point_stride,
                }
            ),
        )
        sums = {axis: float(np.float64(table[axis]).sum()) for axis in "xyz"}
        return {"points": len(table), "fields": list(fields), "sums": sums, "frame_id": message.frame_id}
    if name in ("foxglove.RawImage", "foxglove.CompressedImage"):
        kept = {key: getattr(message, key) for key in ("width", "height", "encoding", "step", "format") if hasattr(message, key)}
        return kept | {"bytes": len(message.data), "sum": int(np.frombuffer(message.data, np.uint8).sum(dtype=np.int64)), "frame_id": message.frame_id}
    return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)


def stamp_ns(message):
    stamped = message
    for field in ("transforms", "entities", "deletions"):
        if hasattr(message, field) and len(getattr(message, field)):
            stamped = getattr(message, field)[0]
    return stamped.timestamp.seconds * 10**9 + stamped.timestamp.nanos


def main():
    url, stall = sys.argv[1], "--stall" in sys.argv
    channels, subscriptions = {}, {}
    with connect(url, subprotocols=["foxglove.sdk.v1"], max_size=None, max_queue=1 if stall else 4096) as server:
        assert server.subprotocol == "foxglove.sdk.v1"
        try:
            for message in server:
                if isinstance(message, str):
                    message = json.loads(message)
                    if message["op"] == "serverInfo":
                        print(json.dumps({"server": message["name"]}), flush=True)
                    if message["op"] == "advertise":
                        wanted = []
                        for channel in message["channels"]:
                            number = len(subscriptions) + 1
                            channels[channel["id"]] = channel
                            subscriptions[number] = (channel, decoder(channel))
                            wanted.append({"id": number, "channelId": channel["id"]})
                        server.send(json.dumps({"op": "subscribe", "subscriptions": wanted}))
                    continue
                if stall:
                    print(json.dumps({"stalled": True}), flush=True)
                    time.sleep(3600)
                assert message[0] == 1, message[0]
                number, log_time = struct.unpack_from("<IQ", message, 1)
                channel, kind = subscriptions[number]
                decoded = kind.FromString(message[13:])
                line = {"topic": channel["topic"], "schema": channel["schemaName"], "log_time": log_time}
                line["stamp_ns"] = stamp_ns(decoded)
                line["message"] = told(channel["schemaName"], decoded)
                print(json.dumps(line), flush=True)
        except ConnectionClosed:
            pass


main()
