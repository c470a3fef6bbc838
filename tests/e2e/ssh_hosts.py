"""Hosts with a real sshd on loopback, each with a home of its own, that nothing but keys and Python make usable.

Rule: everything is started and ended by its own process number; what runs for a host is found by its home in the
environment, so that a test can say that nothing is left there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from processes import PATIENCE, children, free_port, is_alive, read, until

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"


def need_sshd() -> None:
    """Skip, aloud, where there is none."""
    if not os.path.exists(SSHD) or shutil.which("ssh") is None:
        pytest.skip("sshd or ssh is not installed: apt-get install openssh-server")
    if os.geteuid():
        pytest.skip("an sshd of our own needs to be started by root")


class SshHost:
    """One sshd, under a name of an SSH configuration that `ssh` is told of by `PATH`.

    `address`: where it listens; `prefix`: words before its command, if it is to run elsewhere; `more`: variables that
    who logs in has in the environment.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        *options: str,
        address: str = "127.0.0.1",
        prefix: Sequence[str] = (),
        more: str = "",
    ) -> None:
        self.address = address
        self.prefix = prefix
        self.name = name
        self.folder = folder / name
        self.home = self.folder / "home"
        self.home.mkdir(parents=True)
        os.makedirs("/run/sshd", exist_ok=True)
        self.port = free_port()
        for key in ("host_key", "user_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / key)], check=True)
        (self.folder / "authorized").write_text((self.folder / "user_key.pub").read_text())
        (self.folder / "known_hosts").write_text(
            f"[{self.address}]:{self.port} {(self.folder / 'host_key.pub').read_text()}"
        )
        self.config = self.folder / "sshd_config"
        lines = [
            f"Port {self.port}",
            f"ListenAddress {self.address}",
            f"HostKey {self.folder}/host_key",
            f"PidFile {self.folder}/pid",
            f"AuthorizedKeysFile {self.folder}/authorized",
            "PermitRootLogin prohibit-password",
            "PasswordAuthentication no",
            "UsePAM no",
            "StrictModes no",
            f"SetEnv HOME={self.home} XDG_CACHE_HOME={self.home}/.cache BOUGH_TEST_HOST={self.folder} {more}".rstrip(),
            *options,
        ]
        self.config.write_text("\n".join(lines) + "\n")
        self.sshd: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def client_config(self) -> str:
        """What a user would have in ~/.ssh/config."""
        return "\n".join(
            [
                f"Host {self.name} {self.name}.example.org",
                f"  HostName {self.address}",
                f"  Port {self.port}",
                "  User root",
                f"  IdentityFile {self.folder}/user_key",
                "  IdentitiesOnly yes",
                f"  UserKnownHostsFile {self.folder}/known_hosts",
                "  StrictHostKeyChecking yes",
                "",
            ]
        )

    def start(self) -> None:
        """Let others connect."""
        self.sshd = subprocess.Popen(
            [*self.prefix, SSHD, "-D", "-f", str(self.config), "-E", str(self.folder / "sshd.log")],
            start_new_session=True,
        )
        until(lambda: is_listening(self.port, self.address), f"sshd {self.name}", story=self.said)

    def forget_connections(self) -> None:
        """Who is connected is not any more."""
        for pid in children(self.sshd.pid) if self.sshd is not None else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)

    def cut(self) -> None:
        """Nobody can connect, and who is connected is not any more."""
        if self.sshd is not None:
            self.forget_connections()
            self.sshd.kill()
            self.sshd.wait(PATIENCE)
            self.sshd = None

    def remove(self) -> None:
        """End it, and whatever runs there."""
        self.cut()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)

    def said(self) -> str:
        return (self.folder / "sshd.log").read_text(errors="replace")

    def processes(self) -> dict[int, str]:
        """What runs there for somebody who logged in."""
        mark = f"BOUGH_TEST_HOST={self.folder}\0".encode()
        found = {}
        for entry in os.listdir("/proc"):
            if entry.isdecimal() and mark in read(f"/proc/{entry}/environ") + b"\0" and is_alive(int(entry)):
                found[int(entry)] = read(f"/proc/{entry}/cmdline").replace(b"\0", b" ").decode(errors="replace")
        return found

    def executors(self) -> list[int]:
        return [pid for pid, words in self.processes().items() if "bough.executor" in words and "--pilot" in words]


def install_ssh(folder: Path, hosts: list[SshHost], options: str = "") -> Path:
    """A folder for PATH whose `ssh` is the system's, with the configuration of these hosts, and options that win."""
    config = folder / "ssh_config"
    config.write_text("".join(host.client_config for host in hosts))
    place = folder / "bin"
    place.mkdir(exist_ok=True)
    script = place / "ssh"
    script.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {config} {options} "$@"\n')
    script.chmod(0o755)
    return place


def is_listening(port: int, address: str = "127.0.0.1") -> bool:
    with socket.socket() as sock:
        return sock.connect_ex((address, port)) == 0
