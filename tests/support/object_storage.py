"""A real S3 API on loopback: moto's server in a process of its own, and a client for it."""

import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

SECRET = "wJalrXUtnFEMIK7MDENGbPxRfiCYzzSECRET"  # noqa: S105 - made up, for loopback
KEY = "AKIDEXAMPLE7LOOPBACK"


@contextmanager
def s3_server():
    """Start the server; yield the environment by which clients find it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    command = [Path(sys.executable).with_name("moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _wait(port)
            yield {
                "AWS_ACCESS_KEY_ID": KEY,
                "AWS_SECRET_ACCESS_KEY": SECRET,
                "AWS_DEFAULT_REGION": "us-east-1",
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            }
        finally:
            server.kill()


def _wait(port):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError("moto's server did not start")


def bucket_client(environment):
    import boto3

    return boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        region_name="us-east-1",
    )


def holders(root, text):
    """Return the files below `root` that contain a text."""
    wanted = text.encode()
    files = (Path(folder, name) for folder, _, names in os.walk(root) for name in names)
    return [path for path in files if path.is_file() and wanted in path.read_bytes()]
