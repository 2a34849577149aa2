"""Receives JSON over zenoh: subscribe.py ENDPOINT KEY COUNT.  Listens on ENDPOINT, says "ready" on standard output,
then prints one line a sample: key, a tab, payload. Ends after COUNT samples or half a minute."""

import json
import queue
import sys

import zenoh

endpoint, key, count = sys.argv[1:]
config = zenoh.Config()
config.insert_json5("listen/endpoints", json.dumps([endpoint]))
config.insert_json5("scouting/multicast/enabled", "false")
samples = queue.Queue()
with zenoh.open(config) as session:
    subscriber = session.declare_subscriber(key, samples.put)
    print("ready", flush=True)
    for _ in range(int(count)):
        sample = samples.get(timeout=30)
        print(f"{sample.key_expr}\t{sample.payload.to_string()}", flush=True)
