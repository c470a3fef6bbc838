"""The tables of a store: the journal itself, the tables folded from it, and what readers are promised.

Columns of the jobs database are promised to users (docs/reference/jobs-database.md): tables may gain columns, never
lose or rename one. Rule: a change of these tables raises `SCHEMA`; folded tables can always be dropped and made again
from the journal. The statements are written for SQLite; `postgresql` translates them.
"""

from __future__ import annotations

import re
from typing import Final

from bough.model.ids import NUMBERS

FILE: Final = "journal.db"  # of a store in a folder
SCHEMA: Final = 12
FOLDED: Final = (
    "position", "runs", "groups", "group_after", "tasks", "elements", "spans", "attempts", "executors", "files",
    "after", "attributes", "declared", "memo", "arrays", "array_pages", "borrowed", "blob_uses", "sweeps", "lasting",
    "firings", "series", "pilots", "staging", "queues",
)  # fmt: skip

OUT: Final = "('placed', 'running')"  # attempts and spans that executors have

STREAMS: Final = (
    "stdout_path TEXT, stdout_offset INTEGER, stdout_length INTEGER, "
    "stderr_path TEXT, stderr_offset INTEGER, stderr_length INTEGER"
)

DURABLE: Final = """
CREATE TABLE IF NOT EXISTS journal(turn INTEGER PRIMARY KEY, time REAL NOT NULL, facts BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS blobs(id BLOB PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS snapshots(run INTEGER PRIMARY KEY, turn INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS about(name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""

# made also in stores that are older than it, which need not be folded anew for it
QUARANTINE: Final = """
CREATE TABLE IF NOT EXISTS quarantine(
  turn INTEGER, position INTEGER, scope TEXT, kind TEXT NOT NULL, reason TEXT NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (turn, position, scope)) WITHOUT ROWID"""

# the same: core-hours by site and time, which are not folded (see `core_hours`), and of workflows, which are summed up
SITE_USAGE: Final = """
CREATE TABLE IF NOT EXISTS site_usage(
  site TEXT, period INTEGER, start INTEGER, core_seconds REAL NOT NULL, startup REAL NOT NULL, used REAL NOT NULL,
  wasted REAL NOT NULL, PRIMARY KEY (site, period, start)) WITHOUT ROWID"""
USAGE_COUNTED: Final = """
CREATE TABLE IF NOT EXISTS usage_counted(
  site TEXT PRIMARY KEY, core_seconds REAL NOT NULL, startup REAL NOT NULL, used REAL NOT NULL, wasted REAL NOT NULL)"""
USAGE_PARTS: Final = """
CREATE VIEW IF NOT EXISTS usage_parts AS
SELECT tasks.run AS run, executors.site AS site,
  CASE WHEN attempts.state = 'done' THEN attempts.ended - attempts.started ELSE 0.0 END * tasks.cores AS used,
  CASE WHEN attempts.state = 'done' THEN 0.0 ELSE attempts.ended - COALESCE(attempts.started, attempts.placed) END
    * tasks.cores AS wasted
FROM tasks JOIN attempts ON attempts.id = tasks.id JOIN executors ON executors.id = attempts.executor
WHERE attempts.state IN ('done', 'failed', 'cancelled', 'lost', 'given back', 'superseded')
  AND attempts.ended > COALESCE(attempts.started, attempts.placed)
UNION ALL
SELECT tasks.run, executors.site, spans.seconds * tasks.cores, 0.0
FROM tasks JOIN spans ON spans.id = tasks.id JOIN executors ON executors.id = spans.executor
WHERE tasks.is_array = 1 AND spans.state = 'done' AND COALESCE(spans.reused, 0) = 0"""
WORKFLOW_USAGE: Final = """
CREATE VIEW IF NOT EXISTS workflow_usage AS
SELECT run, site, sum(used) AS used, sum(wasted) AS wasted FROM usage_parts GROUP BY run, site"""
ADDED: Final = (SITE_USAGE, USAGE_COUNTED, USAGE_PARTS, WORKFLOW_USAGE)
VIEWS: Final = ("workflow_usage", "usage_parts")  # in the order in which they can be dropped

TABLES: Final = f"""
CREATE TABLE IF NOT EXISTS position(
  one INTEGER PRIMARY KEY CHECK (one = 1), turn INTEGER, run INTEGER, clean INTEGER,
  record INTEGER, grp INTEGER, executor INTEGER, span INTEGER, last INTEGER, service INTEGER);
INSERT INTO position VALUES (1, 0, 0, 1, 0, 0, 0, 0, 0, 0) ON CONFLICT DO NOTHING;
CREATE TABLE IF NOT EXISTS runs(
  run INTEGER PRIMARY KEY, name TEXT, host TEXT, pid INTEGER, opened REAL, closed REAL, reason TEXT, policy TEXT,
  turn INTEGER, grp INTEGER, directory TEXT, owner TEXT, complete INTEGER, reuse INTEGER, script TEXT,
  base INTEGER DEFAULT 0);
CREATE TABLE IF NOT EXISTS groups(
  id INTEGER, run INTEGER, parent INTEGER, name TEXT, path TEXT, closed INTEGER, disabled INTEGER DEFAULT 0,
  released INTEGER DEFAULT 0, PRIMARY KEY (run, id)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS groups_by_id ON groups(id);
CREATE INDEX IF NOT EXISTS groups_by_parent ON groups(run, parent);
CREATE TABLE IF NOT EXISTS group_after(
  id INTEGER, run INTEGER, on_kind TEXT, on_id INTEGER, on_idx INTEGER,
  PRIMARY KEY (run, id, on_kind, on_id, on_idx)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tasks(
  id INTEGER PRIMARY KEY, run INTEGER, grp INTEGER, name TEXT, kind TEXT, length INTEGER, is_array INTEGER, state TEXT,
  attempt INTEGER, command TEXT, submitted REAL, started REAL, ended REAL, seconds REAL, executor INTEGER, host TEXT,
  exit_code INTEGER, signal INTEGER, cause TEXT, message TEXT, traceback TEXT, parameters TEXT,
  reused INTEGER DEFAULT 0, memory INTEGER, cpu REAL,
  {STREAMS},
  turn INTEGER, priority INTEGER, cores REAL,
  done INTEGER DEFAULT 0, failed INTEGER DEFAULT 0, skipped INTEGER DEFAULT 0, cancelled INTEGER DEFAULT 0,
  is_open INTEGER DEFAULT 0, waits INTEGER, releases INTEGER DEFAULT 0, indices TEXT DEFAULT '', needs TEXT,
  notrun INTEGER GENERATED ALWAYS AS (skipped) STORED,
  number INTEGER GENERATED ALWAYS AS (id % {NUMBERS}) STORED);
CREATE INDEX IF NOT EXISTS tasks_by_group ON tasks(run, grp);
CREATE TABLE IF NOT EXISTS elements(
  id INTEGER, idx INTEGER, state TEXT, attempt INTEGER, executor INTEGER, host TEXT,
  started REAL, ended REAL, seconds REAL, exit_code INTEGER, signal INTEGER, cause TEXT, message TEXT,
  traceback TEXT, parameters TEXT, memory INTEGER, cpu REAL, {STREAMS}, reused INTEGER, turn INTEGER,
  PRIMARY KEY (id, idx)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS elements_unsuccessful ON elements(id, idx) WHERE state != 'done';
CREATE TABLE IF NOT EXISTS spans(
  id INTEGER, start INTEGER, stop INTEGER, state TEXT, attempt INTEGER, executor INTEGER,
  placed REAL, started REAL, ended REAL, seconds REAL, turn INTEGER,
  reused INTEGER, cause TEXT, message TEXT, span INTEGER);
CREATE INDEX IF NOT EXISTS spans_by_task ON spans(id, start);
CREATE INDEX IF NOT EXISTS spans_open ON spans(span) WHERE state IN {OUT};
CREATE TABLE IF NOT EXISTS attempts(
  id INTEGER, idx INTEGER, attempt INTEGER, executor INTEGER, host TEXT, placed REAL, started REAL, ended REAL,
  state TEXT, cause TEXT, exit_code INTEGER, signal INTEGER, message TEXT, span INTEGER,
  PRIMARY KEY (id, idx, attempt, span)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS attempts_open ON attempts(span) WHERE state IN {OUT};
CREATE TABLE IF NOT EXISTS executors(
  id INTEGER PRIMARY KEY, run INTEGER, site TEXT, host TEXT, pid INTEGER, cores REAL, memory INTEGER, gpus REAL,
  joined REAL, "left" REAL, reason TEXT, resources TEXT, attributes TEXT);
CREATE TABLE IF NOT EXISTS pilots(
  run INTEGER, id INTEGER, site TEXT, state TEXT, allocation INTEGER, cores REAL, executors INTEGER DEFAULT 0,
  asked REAL, queued REAL, started REAL, ended REAL, handle TEXT, reason TEXT, released TEXT, message TEXT,
  core_seconds REAL, startup REAL, used REAL, wasted REAL, PRIMARY KEY (run, id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS queues(turn INTEGER, queue TEXT, time REAL, limits TEXT, PRIMARY KEY (turn, queue));
CREATE TABLE IF NOT EXISTS files(
  id INTEGER, idx INTEGER, slot TEXT, path TEXT, size INTEGER, mtime_ns INTEGER,
  PRIMARY KEY (id, idx, slot)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS after(
  id INTEGER, on_kind TEXT, on_id INTEGER, on_idx INTEGER, idx INTEGER,
  PRIMARY KEY (id, idx, on_kind, on_id, on_idx)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS attributes(
  kind TEXT, id INTEGER, name TEXT, value TEXT, run INTEGER, PRIMARY KEY (run, kind, id, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS firings(
  id INTEGER, idx INTEGER, turn INTEGER, n INTEGER, attempt INTEGER, at REAL, monitor TEXT, step INTEGER, kind TEXT,
  action TEXT, name TEXT, reason TEXT, value REAL, text TEXT, seen INTEGER, total INTEGER,
  PRIMARY KEY (id, idx, turn, n)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS series(
  id INTEGER, idx INTEGER, metric TEXT, turn INTEGER, n INTEGER, attempt INTEGER, step REAL, at REAL, value REAL,
  total INTEGER, PRIMARY KEY (id, idx, metric, turn, n)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS staging(
  id INTEGER, idx INTEGER, attempt INTEGER, stage_in REAL, stage_out REAL, cached INTEGER, from_peers INTEGER,
  from_origin INTEGER, sent INTEGER, from_shared INTEGER, hits INTEGER, peer_hits INTEGER, misses INTEGER,
  PRIMARY KEY (id, idx, attempt)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS declared(path TEXT, run INTEGER, PRIMARY KEY (path, run)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS memo(
  key BLOB, record INTEGER, start INTEGER, stop INTEGER, attempt INTEGER, turn INTEGER, run INTEGER, checked INTEGER,
  PRIMARY KEY (key, record, start)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS memo_by_record ON memo(record, start, stop);
CREATE TABLE IF NOT EXISTS arrays(record INTEGER PRIMARY KEY, run INTEGER, key BLOB, length INTEGER, table_blob BLOB);
CREATE INDEX IF NOT EXISTS arrays_by_key ON arrays(key, record);
CREATE TABLE IF NOT EXISTS array_pages(record INTEGER, turn INTEGER, PRIMARY KEY (record, turn)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS borrowed(
  turn INTEGER, source INTEGER, run INTEGER, PRIMARY KEY (turn, source, run)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS blob_uses(blob BLOB, run INTEGER, PRIMARY KEY (blob, run)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS lasting(
  run INTEGER, record INTEGER, is_array INTEGER, PRIMARY KEY (run, record)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sweeps(first INTEGER PRIMARY KEY, last INTEGER, removed INTEGER);
"""
# runs.complete: 1 ended well, 0 unfinished, NULL running; runs.reuse: a `ReuseScope`; runs.script: one script run
# borrowed: successes (row and record) that another run uses; they outlive the run that had them
# lasting: tasks and arrays that any later run may reuse, however theirs ended
# blob_uses: by which workflows' runs a blob is used; run 0 for those that were removed since
# queues: what limits a named queue was given when, as JSON; NULL: it was removed
# quarantine: facts that were set aside, see `quarantine.py`
# sweeps: ranges of the journal that hold facts of removed runs, and the turn of the removal

_WORDS: Final = {
    " WITHOUT ROWID": "",
    " INTEGER": " BIGINT",
    " REAL": " DOUBLE PRECISION",
    " BLOB": " BYTEA",
    "CREATE VIEW IF NOT EXISTS": "CREATE OR REPLACE VIEW",
}


def statements() -> list[str]:
    """What makes all tables."""
    made = [statement.strip() for statement in (DURABLE + TABLES).split(";") if statement.strip()]
    return [*made, *ADDED]


def postgresql(made: str) -> str:
    """The same statement for PostgreSQL."""
    return re.sub("|".join(_WORDS), lambda found: _WORDS[found[0]], made)
