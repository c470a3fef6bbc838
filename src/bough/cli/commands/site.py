"""`bough site`: add sites at which the server starts executors, say when sites may be used, and show which are there.

A site is the name that executors have: those that the server starts at a site that was added, or those that people
start (`bough executor start --site NAME`). If no server runs, one is started that knows the sites, and ends soon after.
Rule: only the user of the server changes something, and every verb that does answers with the site as it is then.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import TYPE_CHECKING, Any

from bough.api.display.surroundings import show_seconds
from bough.cli.main import add_verb
from bough.cli.option_values import duration, path_name
from bough.cli.output import Output
from bough.cli.site_definitions import add_definition_arguments, read_definitions
from bough.cli.targets.live_server import ANSWER_TIMEOUT, ServerClient, add_server_argument, connect_client
from bough.errors import SiteError, UnknownName
from bough.model.bounds import SiteName, Word, within
from bough.model.sites.availability import Grace, RuleKind, RuleText, SiteRule, read_calendar
from bough.model.texts.plurals import counted
from bough.wire import questions

if TYPE_CHECKING:
    from bough.cli.site_test import StepResult

_OF_VERBS = (
    "bough site list",
    "bough site availability cluster --calendar 'Mon-Fri 20:00-07:00, Sat, Sun' --grace 1m",
    "bough site availability cluster --file /shared/cluster-away",
    "bough site availability cluster --command 'ssh head nobody-waits' --every 30s",
    "bough site availability cluster --always",
    "bough site away cluster --grace 5m --reason maintenance",
    "bough site back cluster",
    "bough site add lab --ssh me@lab.example.org --max-pilots 1",
    "bough site add --file sites.toml",
    "bough site test lab",
    "bough site show lab",
    "bough site disable lab",
    "bough site enable lab",
    "bough site remove lab",
    "bough site login lab",
)
_AS_PLATFORM = "bough site list --as-platform > mine.toml"
EXAMPLES = (*_OF_VERBS[:2], *_OF_VERBS[5:10], _OF_VERBS[13])  # one or two of each subject
_HOURS = {"used": "used", "idle": "idle", "startup": "start-up", "wasted": "wasted"}
_LONG = 900.0  # seconds: a slow line takes a while to carry the archive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the verbs."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = add_verb(verbs, "list", "show who is there and who is away, and why", (*_OF_VERBS[:1], _AS_PLATFORM))
    listing.add_argument(
        "--as-platform", action="store_true", help="write what was measured on them as a platform for bough simulate"
    )
    add_server_argument(listing)
    _add_definition_verbs(verbs)
    rule = add_verb(verbs, "availability", "say how the server learns whether a site may be used", _OF_VERBS[1:5])
    _add_site(rule)
    kinds = rule.add_mutually_exclusive_group(required=True)
    kinds.add_argument(
        "--file",
        type=path_name,
        metavar="PATH",
        help="away while this file is there; one that begins with the word free says the reverse",
    )
    kinds.add_argument(
        "--command", metavar="CMD", help="a command on the server's machine: exit code 0, it may be used"
    )
    kinds.add_argument("--calendar", metavar="TIMES", help="when it may be used: 'Mon-Fri 20:00-07:00, Sat, Sun'")
    kinds.add_argument("--always", action="store_true", help="it may always be used, as without a rule")
    _add_grace(rule)
    rule.add_argument(
        "--every", type=duration, default=0.0, metavar="TIME", help="time between two looks (1s; 10s for a command)"
    )
    away = add_verb(verbs, "away", "take a site back by hand: its tasks go elsewhere", _OF_VERBS[5:6])
    _add_site(away)
    _add_grace(away)
    away.add_argument("--reason", default="", metavar="TEXT", help="what others are told")
    _add_site(add_verb(verbs, "back", "let a site's rule count again, or use it if it has none", _OF_VERBS[6:7]))


def _add_definition_verbs(verbs: Any) -> None:
    adding = add_verb(verbs, "add", "add a site at which the server starts executors, or change it", _OF_VERBS[7:9])
    adding.add_argument("site", metavar="NAME", nargs="?", help="what it is called from now on")
    add_definition_arguments(adding)
    adding.add_argument(
        "--file", type=path_name, metavar="FILE", help="definitions in TOML, a table [NAME] each: all, or that of NAME"
    )
    add_server_argument(adding)
    _add_site(add_verb(verbs, "test", "try every step up to a task that runs there", _OF_VERBS[9:10]))
    _add_site(
        add_verb(verbs, "login", "log in to a site that asks for a password or a second factor", _OF_VERBS[14:15])
    )
    _add_site(add_verb(verbs, "show", "show how a site is defined, and its pilots", _OF_VERBS[10:11]))
    disable = add_verb(verbs, "disable", "end the pilots of a site, and start no others", _OF_VERBS[11:12])
    _add_site(disable)
    _add_grace(disable)
    _add_site(add_verb(verbs, "enable", "use a site again", _OF_VERBS[12:13]))
    remove = add_verb(verbs, "remove", "end the pilots of a site, and forget it", _OF_VERBS[13:14])
    _add_site(remove)
    remove.add_argument("--force", action="store_true", help="also if it cannot be reached")


def _add_site(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("site", metavar="NAME", help="the site, as in bough executor start --site NAME")
    add_server_argument(parser)


def _add_grace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--grace", type=duration, default=0.0, metavar="TIME", help="time that running tasks have to end (none)"
    )


def run(args: argparse.Namespace, output: Output) -> int:
    """Do what the verb says."""
    verbs = {"list": _list, "add": _define, "test": _test, "login": _login, "show": _show, "remove": _remove}
    if args.verb in verbs:
        return verbs[args.verb](args, output)
    question = _rule_of(args) if args.verb == "availability" else _move(args)
    with _connect(args) as server:
        found = server.ask(question)
    output.answer(found, lambda: [_line(found)])
    return 0


def _connect(args: argparse.Namespace, role: str = "submit", timeout: float = ANSWER_TIMEOUT) -> ServerClient:
    """The server that was named, or the user's own, which is started for this if it does not run."""
    if args.server or os.environ.get("BOUGH_SERVER"):
        return connect_client(args.server, role, timeout)
    from bough.api.session.own_server import asked_of_own

    return asked_of_own(lambda address: connect_client(address, role, timeout))


def _rule_of(args: argparse.Namespace) -> questions.SetSiteRule:
    if args.file:
        kind, text = RuleKind.FILE, os.path.abspath(args.file)
    elif args.command is not None:
        kind, text = RuleKind.COMMAND, args.command
    elif args.calendar is not None:
        kind, text = RuleKind.CALENDAR, args.calendar
        read_calendar(text)
    else:
        kind, text = RuleKind.ALWAYS, ""
    grace = 0.0 if kind is RuleKind.ALWAYS else within("--grace", args.grace, Grace)
    text = within(f"--{kind.value}", text, RuleText)
    return questions.SetSiteRule(_site(args), SiteRule(kind, text, grace, args.every if text else 0.0))


def _move(args: argparse.Namespace) -> questions.MoveSite:
    if args.verb in {"back", "enable"}:
        return questions.MoveSite(_site(args), away=False)
    grace = within("--grace", args.grace, Grace)
    reason = "disabled" if args.verb == "disable" else within("--reason", args.reason, Word)
    return questions.MoveSite(_site(args), away=True, grace=grace, reason=reason)


def _site(args: argparse.Namespace) -> str:
    return within("the site", args.site, SiteName)


def _line(site: dict[str, Any]) -> str:
    """A site in a sentence: site cluster is away: its owner needs it."""
    words = f"site {site['site']} is {site['state']}"
    return f"{words}: {site['reason']}" if site.get("reason") else words


def _list(args: argparse.Namespace, output: Output) -> int:
    with _connect(args, "read") as server:
        found = server.ask(questions.Sites())
        if args.as_platform:
            return _platform(server, found, output)
    if args.json:
        output.answer(found, list)
        return 0
    rows = [
        [
            *(site["site"], site["state"], _pilots(site), site["executors"], site["cores"], site["tasks"]),
            *(_since(site["since"]), _change(site["next_change"]), _rule(site), _why(site)),
        ]
        for site in found
    ]
    output.table(["SITE", "STATE", "PILOTS", "EXECUTORS", "CORES", "TASKS", "SINCE", "CHANGES", "RULE", "WHY"], rows)
    return 0


def _platform(server: ServerClient, sites: list[dict[str, Any]], output: Output) -> int:
    """What was measured, as a platform."""
    import msgspec

    from bough.analysis.measured_platform import measured_sites, platform_text
    from bough.model.sites.site_specs import SiteSpec

    server.ask(questions.Project())

    def ask(statement: str) -> list[dict[str, Any]]:
        answer = server.ask(questions.Sql(statement, []))
        return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]

    waits = {site["site"]: site.get("waits") or () for site in sites}
    defined = {site["site"]: msgspec.convert(site["spec"], SiteSpec) for site in sites if site.get("spec")}
    text = platform_text(measured_sites(ask), waits, defined)
    output.answer({"platform": text}, text.splitlines)
    return 0


def _since(when: float | None) -> str:
    return show_seconds(max(0.0, time.time() - when)) if when else ""


def _change(when: float | None) -> str:
    """When it leaves or returns next: today 20:00, or Sat 00:00."""
    if when is None:
        return ""
    then, today = time.localtime(when), time.localtime()
    day = "today" if then[:3] == today[:3] else time.strftime("%a", then)
    return f"{day} {time.strftime('%H:%M', then)}"


def _rule(site: dict[str, Any]) -> str:
    return str(SiteRule(RuleKind(site["rule"]), site["text"], site["grace"]))


def _why(site: dict[str, Any]) -> str:
    words = [site["reason"]] if site["reason"] else []
    if site["by_hand"]:
        words.append("by hand")
    if site["trouble"]:
        words.append(f"not sure: {site['trouble']}")
    if site["problem"]:
        words.append(site["problem"])
    return "; ".join(words)


def _pilots(site: dict[str, Any]) -> str:
    """How many pilots there are of how many there may be: 1/2; nothing where none is started."""
    return f"{len(site['pilots'])}/{site['spec'].get('max_pilots', 1)}" if site["spec"] is not None else ""


# --- sites at which the server starts executors -----------------------------------------------------------


def _define(args: argparse.Namespace, output: Output) -> int:
    definitions = read_definitions(args)
    with _connect(args) as server:
        found = [server.ask(questions.DefineSite(name, spec)) for name, spec in definitions.items()]
    output.answer(found, lambda: [f"site {one['site']}: {one['definition']}" for one in found])
    return 0


def _test(args: argparse.Namespace, output: Output) -> int:
    from bough.cli.site_test import try_steps

    results: list[StepResult] = []
    with _connect(args, timeout=_LONG) as server:
        for result in try_steps(server, args.server, _site(args)):
            results.append(result)
            if not args.json:
                output.answer({}, lambda: [_step_line(results[-1])])
    ok = all(result.ok for result in results)
    words = f"site {args.site} works" if ok else f"site {args.site} cannot be used: see the last line"
    output.answer({"site": args.site, "ok": ok, "steps": [one._asdict() for one in results]}, lambda: [words])
    return 0 if ok else 3


def _step_line(result: StepResult) -> str:
    return f"{'ok  ' if result.ok else 'FAIL'}  {result.step:<9}  {result.text}"


def _login(args: argparse.Namespace, output: Output) -> int:
    """Let ssh ask what it has to, on the user's own terminal; the server goes on with the connection."""
    import subprocess

    name = _site(args)
    with connect_client(args.server, timeout=_LONG) as server:
        argv = server.ask(questions.LoginSite(name))["argv"]
    if argv:
        code = subprocess.call(argv)
        if code:
            raise SiteError(f"ssh has not logged in to site {name} (exit code {code}); what it says is above")
    with connect_client(args.server, timeout=_LONG) as server:
        found = server.ask(questions.LoginSite(name, done=True))
    output.answer(found, lambda: [f"site {name}: {found['text']}"])
    return 0 if found["ok"] else 3


def _show(args: argparse.Namespace, output: Output) -> int:
    with _connect(args, "read") as server:
        found = [site for site in server.ask(questions.Sites()) if site["site"] == _site(args)]
    if not found:
        raise UnknownName(f"there is no site {args.site}; see bough site list")
    output.answer(found[0], lambda: _details(found[0]))
    return 0


def _details(site: dict[str, Any]) -> list[str]:
    lines = [_line(site), f"{counted(site['executors'], 'executor')}, {site['cores']:g} cores, rule: {_rule(site)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in (site["spec"] or {}).items()]
    for pilot in site["pilots"]:
        age = show_seconds(max(0.0, time.time() - pilot["asked"]))
        called = f" as {pilot['handle']}" if pilot["handle"] else ""
        lines.append(f"pilot {pilot['pilot']} is {pilot['state']}{called}, asked for {age} ago")
    if site.get("waits"):
        lines.append(f"the last pilots waited: {', '.join(show_seconds(wait) for wait in site['waits'][-5:])}")
    if site.get("room") is not None:
        lines.append(f"free now, as the site says: room for {counted(site['room'], 'pilot')}")
    if site.get("core_hours"):
        hours = site["core_hours"]
        parts = ", ".join(f"{hours[name]:.3g} {word}" for name, word in _HOURS.items())
        lines.append(f"core-hours: {hours['all']:.3g}, of which {parts}")
    if site.get("no_more"):
        lines.append(f"no more pilots, because {site['no_more']}")
    return [*lines, f"problem: {site['problem']}"] if site["problem"] else lines


def _remove(args: argparse.Namespace, output: Output) -> int:
    with _connect(args, timeout=_LONG) as server:
        found = server.ask(questions.RemoveSite(_site(args), args.force))
    ended = counted(found["pilots"], "pilot")
    output.answer(found, lambda: [f"site {found['site']} was removed, {ended} ended"])
    return 0
