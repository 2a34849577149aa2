"""Schemathesis against a service that runs: fuzz_service.py URL

Requests that the OpenAPI document allows and requests that it does not, from a fixed seed: no answer is a failure of the
server, and every answer has a status, a type and a form that the document has.
"""

import re
import subprocess
import sys
import tempfile

CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
]


def main(url):
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json", "--checks", ",".join(CHECKS)]
    command += ["--phases", "examples,coverage,fuzzing", "--max-examples", "100", "--seed", "7"]
    command += ["--generation-database", "none", "--no-color", "--workers", "1"]
    # What Schemathesis and Hypothesis keep for a next time lies in the folder they work in.
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=900, cwd=folder)
    tail = ran.stdout[-6000:] + ran.stderr[-2000:]
    if ran.returncode != 0:
        sys.exit(tail)
    cases = re.search(r"(\d+) generated", ran.stdout)
    print("checked", cases.group(1) if cases else "", "cases")


main(sys.argv[1])
