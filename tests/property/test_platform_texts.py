"""Platforms in TOML that somebody has spoilt: they are read, or refused in one line; what is read can be built."""

from __future__ import annotations

from itertools import islice

from hypothesis import example, given, settings
from hypothesis import strategies as st

from bough.errors import UserError
from bough.sim.data.topology import Topology
from bough.sim.platforms.platform import Platform, read_platform
from bough.sim.platforms.platform_files import with_files, write_platform

SITE = (
    "hosts = 4", "cores = 8", "speed = [0.8, 1.2]", "speed = {mean = 1, deviation = 0.1}", "speeds = [1, 2, 3, 4]",
    'memory = "64GB"', 'cache = "50GB"', 'eviction = "lru"', 'store = "site"', 'disk_read = "400MB/s"',
    "disk_write = 4e8", 'nic = {bandwidth = "1Gbit/s", latency = 1e-4}', "lifetime = 100", "repair = 10",
    'uplink = {bandwidth = "100Mbit/s", sharing = "serial", availability = {step = 5, values = [1, 0.5]}}',
    "availability = {mean = 0.7, deviation = 0.2, steps = 20}", 'availability = {file = "f", shift = true}',
    "availability = {times = [0, 5], values = [1]}", "leaves = [5, 20]", "returns = 10",
    'availability = [{file = "f"}, {mean = 0.5}]', 'availability = {file = "f-{host}"}', "gpus = 2",
    'attributes = {os = "linux", cpu = ["avx2"]}', "resources = {license = 3}",
    "queue = {wait = 120, deviation = 60, startup = 5, idle = 60, walltime = 9}", 'queue = {log = "l"}',
)  # fmt: skip
RULES = (
    'peers = "site"', "chains = true", "streams = 2", 'outputs = "keep"', 'fairness = "rtt"', 'index = "central"',
    'index = "distributed"', "lookups = 5", "early = true", 'killed = "stay"', "startup = 0.5",
)  # fmt: skip
PARTS = ("[home]\nbandwidth = 100", '[site."a b"]\nhosts = 2', "[site.b]\nqueue = {wait = 5}", "[nothing]",
         "[queue.night]\nmax_cores = 8", '[queue.q]\nshare = 2\nsites = ["a"]\nmax_time = 60', "[queue]")  # fmt: skip
WORDS = st.sampled_from(
    [
        "nan",
        "inf",
        "-1",
        "0",
        "1e400",
        "1e18",
        "[]",
        "[0]",
        "[1, 2, 3]",
        "{}",
        '""',
        '"x"',
        "true",
        "1979-05-27",
        "9" * 40,
    ]
)
FILES = ("", "0 1\n5 0.5\n9 1\n", "x", "1 0 500 60 4 " + " ".join(["-1"] * 13), "1 nan nan nan nan " + "-1 " * 13)


def _some(lines: tuple[str, ...], most: int) -> st.SearchStrategy[list[str]]:
    """A few lines, each key once."""
    return st.lists(st.sampled_from(lines), max_size=most, unique_by=lambda line: line.partition("=")[0])


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A platform with some of all lines, some with another value, some characters changed."""
    lines = ["[site.a]", *draw(_some(SITE, 8))]
    if rules := draw(_some(RULES, 4)):
        lines += ["[transfers]", *rules]
    lines += draw(_some(PARTS, 2))
    for at in draw(st.lists(st.integers(0, len(lines) - 1), max_size=2)):
        key, equals, _ = lines[at].partition("=")
        lines[at] = f"{key}= {draw(WORDS)}" if equals else lines[at]
    text = "\n".join(lines)
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.text(max_size=2)) + text[at + draw(st.integers(0, 2)) :]
    return text


@settings(max_examples=400)
@given(texts(), st.sampled_from(FILES))
@example("[site.a]\nspeed = nan", "")
@example("a = " + "[" * 3000, "")
@example('[site."a\\nb"]\nhosts = 0', "")
@example(f"[site.{'a' * 5000}]\nhosts = 0", "")
def test_a_spoilt_platform_is_refused_in_one_line_or_can_be_built(text: str, file: str) -> None:
    found = read(text, file)
    if isinstance(found, Platform):
        build(found)
        return
    assert "\n" not in found
    assert len(found) < 1000


def read(text: str, file: str) -> Platform | str:
    """A platform, or what is wrong with it."""
    try:
        return with_files(read_platform(text, "p.toml"), lambda path: file)
    except UserError as error:
        return str(error)


def build(platform: Platform) -> None:
    """Make what a simulation makes of a platform, a few of each."""
    topology = Topology(platform)
    for name, site in platform.site.items():
        topology._nic(name, "h", "in")
        topology._uplink(name, "out")
        topology._disk("read", name, "h")
        assert site.cache_bytes >= 0
        assert all(gone < back for gone, back in site.absences)
    assert all(one.traits.speed > 0 for one in islice(platform.executors(1), 5))
    platform.network()
    assert platform.site.keys() == read_platform(write_platform(platform)).site.keys()
