"""SimGrid's answer to `test_simgrid_makespans.py`: when do these tasks end? For the system's own Python.

It reads a platform and placed tasks as JSON from stdin and writes the time at which each task ends. A task waits for
those before it, gets its inputs all at once, and computes on a core of its own. The model is CM02, nothing is rescaled.
"""

import json
import sys

from simgrid import Actor, Comm, Engine, LinkInRoute, NetZone, Semaphore, this_actor

# Full: all shares are found anew at each event; with the default (Lazy, 3.32) some transfers exceed their links.
OPTIONS = (
    "network/model:CM02", "network/optim:Full", "cpu/model:Cas01", "network/crosstraffic:0", "network/TCP-gamma:0",
)  # fmt: skip


def run(number, task, places, edges, ends):
    """One task, on its host."""
    for before in task["after"]:
        edges[before, number].acquire()
    here = places[task["host"]]
    comms = [Comm.sendto_async(places[source], here, size) for source, size in task["reads"] if source != task["host"]]
    for comm in comms:
        comm.wait()
    this_actor.execute(task["seconds"] * 1e9)
    ends[number] = Engine.clock
    for (before, _), edge in edges.items():
        if before == number:
            edge.release()


def main():
    """One platform, all of its tasks."""
    asked = json.load(sys.stdin)
    engine = Engine(["driver", *[f"--cfg={one}" for one in OPTIONS], "--log=root.thresh:critical"])
    zone = NetZone.create_full_zone("zone")
    places = {}
    for name, speed, cores in asked["hosts"]:
        places[name] = zone.create_host(name, speed * 1e9)
        places[name].core_count = cores
    links = {
        name: zone.create_link(name, bandwidth).set_latency(latency) for name, bandwidth, latency in asked["links"]
    }
    for link in links.values():
        link.seal()
    for source, target, route in asked["routes"]:
        ways = [LinkInRoute(links[name]) for name in route]
        zone.add_route(places[source].netpoint, places[target].netpoint, None, None, ways, False)
    zone.seal()
    tasks, ends = asked["tasks"], {}
    edges = {(before, number): Semaphore(0) for number, task in enumerate(tasks) for before in task["after"]}
    for number, task in enumerate(tasks):
        Actor.create(f"t{number}", places[task["host"]], run, number, task, places, edges, ends)
    engine.run()
    print(json.dumps([ends[number] for number in range(len(tasks))]))


main()
