"""SimGrid's answer to the question of `test_simgrid.py`: when do these transfers end? For the system's own Python.

It reads a platform and its transfers as JSON from stdin and writes the times at which they end. The model is CM02 with
nothing rescaled: no TCP window, no traffic of acknowledgements, factors of 1.
"""

import json
import sys

from simgrid import Actor, Comm, Engine, LinkInRoute, NetZone, this_actor

OPTIONS = ("network/model:CM02", "cpu/model:Cas01", "network/crosstraffic:0", "network/TCP-gamma:0")


def send(number, start, source, target, size, ends):
    """Wait for the start of a transfer, make it, and note when it has ended."""
    if start:
        this_actor.sleep_until(start)
    Comm.sendto_async(source, target, size).wait()
    ends[number] = Engine.clock


def main():
    """One platform, all of its transfers."""
    asked = json.load(sys.stdin)
    engine = Engine(["driver", *[f"--cfg={one}" for one in OPTIONS], "--log=root.thresh:critical"])
    zone = NetZone.create_full_zone("zone")
    hosts = [zone.create_host(f"h{number}", 1e9) for number in range(asked["hosts"])]
    links = {
        name: zone.create_link(name, bandwidth).set_latency(latency) for name, bandwidth, latency in asked["links"]
    }
    for link in links.values():
        link.seal()
    for source, target, route in asked["routes"]:
        ways = [LinkInRoute(links[name]) for name in route]
        zone.add_route(hosts[source].netpoint, hosts[target].netpoint, None, None, ways, True)
    zone.seal()
    ends = {}
    for number, (start, source, target, size) in enumerate(asked["transfers"]):
        Actor.create(f"t{number}", hosts[source], send, number, start, hosts[source], hosts[target], int(size), ends)
    engine.run()
    print(json.dumps([ends[number] for number in range(len(asked["transfers"]))]))


main()
