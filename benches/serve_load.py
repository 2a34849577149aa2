"""Load on a service on loopback: python3 benches/serve_load.py URL [--body FILE] [--path PATH] [--clients N] [--seconds S]

Every client keeps one connection and asks again as soon as it has its answer. Told are answers a second, statuses, and
times from the first byte sent to the last one received. Python's standard library alone.

    sensorium serve pipelines/centerpoint.yaml &
    python3 benches/serve_load.py http://127.0.0.1:8000 --path /health
    python3 benches/serve_load.py http://127.0.0.1:8000 --body request.json --clients 4
"""

import argparse
import collections
import http.client
import threading
import time
import urllib.parse


def ask(host, method, path, body, until, times, statuses):
    connection = http.client.HTTPConnection(host, timeout=120)
    headers = {"Content-Type": "application/json"} if body else {}
    while time.perf_counter() < until:
        began = time.perf_counter()
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        answer.read()
        times.append(time.perf_counter() - began)
        statuses[answer.status] += 1
    connection.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--body", help="file with the body of a request; without one, GET")
    parser.add_argument("--path", default="/predict")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10)
    args = parser.parse_args()
    host = urllib.parse.urlsplit(args.url).netloc
    body = open(args.body, "rb").read() if args.body else None
    shares = [([], collections.Counter()) for _ in range(args.clients)]
    until = time.perf_counter() + args.seconds
    began = time.perf_counter()
    method = "POST" if body else "GET"
    threads = [threading.Thread(target=ask, args=(host, method, args.path, body, until, *share)) for share in shares]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    times = sorted(time for share, _ in shares for time in share)
    statuses = sum((counted for _, counted in shares), collections.Counter())
    at = lambda share: times[min(len(times) - 1, int(share * len(times)))] * 1e3
    print(f"{len(times) / took:.1f} answers/s, statuses {dict(statuses)}, {args.clients} clients, {took:.1f} s")
    print(f"ms: p50 {at(0.5):.2f}  p90 {at(0.9):.2f}  p99 {at(0.99):.2f}  max {times[-1] * 1e3:.2f}")


main()
