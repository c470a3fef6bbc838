"""Real servers of files, on loopback, for tests: S3 (moto), HTTP, FTP, SFTP (sshd) and WebDAV."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class UrlServers:
    """Starts servers that keep their files in folders of `base`; `environment` is what processes need to use them."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.environment: dict[str, str] = {}
        self._processes: list[subprocess.Popen[bytes]] = []

    def _start(self, words: list[str], port: int) -> subprocess.Popen[bytes]:
        with open(self.base / "servers.log", "ab") as log:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._processes.append(process)
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
            except OSError:
                assert process.poll() is None, (self.base / "servers.log").read_text()
                assert time.monotonic() < deadline, f"{words[0]} does not listen"
                time.sleep(0.05)
            else:
                return process

    def folder(self, name: str) -> Path:
        made = self.base / name
        made.mkdir(exist_ok=True)
        return made

    def s3(self) -> str:
        port = free_port()
        self._start([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port)
        self.environment |= {
            "FSSPEC_S3": json.dumps({"endpoint_url": f"http://127.0.0.1:{port}"}),
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        import boto3

        client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", aws_access_key_id="key",
                              aws_secret_access_key="secret", region_name="us-east-1")  # fmt: skip
        client.create_bucket(Bucket="bucket")
        self.s3_client = client
        return "s3://bucket"

    def http(self) -> str:
        port = free_port()
        words = ["-m", "http.server", "--bind", "127.0.0.1", "-d", str(self.folder("http")), str(port)]
        self.http_process = self._start([sys.executable, *words], port)
        return f"http://127.0.0.1:{port}"

    def ftp(self) -> str:
        port = free_port()
        words = ["-m", "pyftpdlib", "-i", "127.0.0.1", "-p", str(port), "-w", "-d", str(self.folder("ftp"))]
        self._start([sys.executable, *words], port)
        return f"ftp://127.0.0.1:{port}"

    def webdav(self) -> str:
        port = free_port()
        words = [
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--root",
            str(self.folder("webdav")),
            "--auth",
            "anonymous",
        ]
        self._start([str(Path(sys.executable).with_name("wsgidav")), *words], port)
        return f"webdav://127.0.0.1:{port}"

    def sftp(self) -> str:
        port, base = free_port(), self.folder("sshd")
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(base / name)], check=True)
        shutil.copy(base / "user.pub", base / "authorized")
        (base / "config").write_text(
            f"Port {port}\nListenAddress 127.0.0.1\nHostKey {base}/host\nPidFile none\n"
            f"AuthorizedKeysFile {base}/authorized\nPermitRootLogin prohibit-password\nPasswordAuthentication no\n"
            "UsePAM no\nStrictModes no\nSubsystem sftp internal-sftp\n"
        )
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        self._start(["/usr/sbin/sshd", "-D", "-f", str(base / "config"), "-e"], port)
        self.environment["FSSPEC_SFTP"] = json.dumps(
            {"key_filename": str(base / "user"), "username": getpass.getuser()}
        )
        return f"sftp://{getpass.getuser()}@127.0.0.1:{port}{self.folder('sftp')}"

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
