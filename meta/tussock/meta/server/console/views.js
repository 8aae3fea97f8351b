// What each part of the page shows of a status (docs/console.md lists its fields).

import { bar, empty, h, table } from "./dom.js";
import { ago, bytes, count, epochMs, iso, percent, plural, rate, span } from "./format.js";

/** Rows of one list that are shown; a page of thousands helps nobody. */
const ROWS_MAX = 200;
const RATE_SECONDS = 10;

/** A moment as "12 s ago", with the exact time at hand. */
function moment(ms, nowMs) {
  return ms ? h("time", { datetime: iso(ms), title: iso(ms) }, ago(ms, nowMs)) : "never";
}

/** An epoch in full, to be copied, and how old it is if it tells. */
function epoch(value, nowMs) {
  if (!value) return "none";
  const ms = epochMs(value);
  return [h("code", { title: ms ? iso(ms) : null }, String(value)), ms ? h("span", { class: "dim" }, ` ${ago(ms, nowMs)}`) : null];
}

/** What a list leaves out. */
function rest(shown, all) {
  return all > shown ? h("p", { class: "empty" }, `and ${count(all - shown)} more`) : null;
}

export function replica({ replica, software }) {
  const leads = replica.role === "leader";
  return [
    h("span", { class: `pill ${leads ? "good" : ""}` }, leads ? "Leader" : "Follower"),
    h("span", { title: "Address of this replica" }, replica.address),
    h("span", {}, `term ${replica.term}`),
    !leads && replica.leader ? h("span", {}, `leader ${replica.leader}`) : null,
    h("span", { class: "dim" }, software),
  ];
}

export function problems(found) {
  if (!found.length) return [h("p", { class: "fine" }, "No problems found")];
  return [
    h(
      "ul",
      {},
      found.map(({ severity, text }) =>
        h("li", { class: severity }, h("b", {}, severity === "error" ? "Error" : "Warning"), " ", text)),
    ),
  ];
}

export function figures({ now_ms: now, version, rates, tables, compaction, sessions }) {
  const mean = (series) => {
    const last = series.slice(-RATE_SECONDS);
    return last.length ? last.reduce((sum, value) => sum + value, 0) / last.length : 0;
  };
  const sum = (of) => tables.reduce((all, one) => all + of(one), 0);
  const clients = sessions.filter(({ kind }) => kind === "client").length;
  const stated = [
    ["Last commit", ago(version.committed_ms, now), version.committed_ms ? iso(version.committed_ms) : "nothing is committed yet"],
    ["Epochs", `${rate(mean(rates.epochs))}/s`, `mean of ${RATE_SECONDS} s`],
    ["Commits", `${rate(mean(rates.commits))}/s`, "log entries; one takes the epochs of all writers that came together"],
    ["Committed", `${bytes(Math.round(mean(rates.bytes)))}/s`, `mean of ${RATE_SECONDS} s`],
    ["Size", bytes(sum((one) => one.bytes + one.history_bytes)), `${plural(sum((one) => one.ssts + one.history_ssts), "SST")}, ${bytes(sum((one) => one.history_bytes))} of it history`],
    ["Row versions", count(sum((one) => one.rows)), `${count(sum((one) => one.deletes))} of them deletes`],
    ["Clients", count(clients), "sessions of clients"],
    ["Compaction slots", `${compaction.tasks.length} / ${compaction.slots}`, "tasks that run, and slots of all compactors"],
  ];
  return stated.map(([name, value, title]) => h("div", { title }, h("dt", {}, name), h("dd", {}, value)));
}

function levels(one) {
  if (!one.levels.length && !one.history_runs) return h("span", { class: "dim" }, "empty");
  const most = Math.max(...one.levels.map((level) => level.bytes), one.history_bytes);
  return h(
    "ul",
    { class: "levels" },
    one.levels.map((level) => {
      const share = most ? level.bytes / most : 0;
      const held = level.level
        ? `${plural(level.ssts, "SST")}${level.bytes_max ? `, ${percent(level.bytes / level.bytes_max)} full` : ""}`
        : `${plural(level.runs, "run")}, ${plural(level.ssts, "SST")}`;
      const facts = `${plural(level.rows, "row version")}, ${plural(level.deletes, "delete")}`;
      return h(
        "li",
        { title: facts },
        h("span", { class: "level" }, `L${level.level}`),
        bar(share, `L${level.level} of ${one.name}: ${bytes(level.bytes)}, ${held}`, level.level ? "" : "l0"),
        h("span", { class: "size" }, bytes(level.bytes)),
        h("span", { class: "dim held" }, held),
      );
    }),
    one.history_runs ? historyOf(one, most) : null,
  );
}

/** The runs that only readers of older epochs need, as one bar below those of the levels. */
function historyOf(one, most) {
  const held = `${plural(one.history_runs, "run")}, ${plural(one.history_ssts, "SST")}`;
  return h(
    "li",
    { title: `${plural(one.history_rows, "row version")}, only for readers of older epochs` },
    h("span", { class: "level" }, "history"),
    bar(most ? one.history_bytes / most : 0, `History of ${one.name}: ${bytes(one.history_bytes)}, ${held}`, "history"),
    h("span", { class: "size" }, bytes(one.history_bytes)),
    h("span", { class: "dim held" }, held),
  );
}

export function tables({ now_ms: now, tables: all }, filter) {
  if (!all.length) return [empty("No tables yet. A client makes one with store.create_table(\"name\").")];
  const wanted = filter.trim().toLowerCase();
  const found = all.filter(({ name }) => name.toLowerCase().includes(wanted));
  if (!found.length) return [empty(`No table's name contains “${filter.trim()}”.`)];
  // Those whose writers wait come first.
  const shown = found.toSorted((a, b) => Number(Boolean(b.stall)) - Number(Boolean(a.stall))).slice(0, ROWS_MAX);
  const rows = shown.map((one) => [
    [h("span", { class: "name" }, one.name), one.stall ? h("span", { class: "pill bad", title: one.stall }, "stalled") : null],
    [
      one.kind,
      one.vnodes ? h("span", { class: "dim" }, `, ${plural(one.vnodes, "vnode")}`) : null,
      one.retention_ms == null ? null : h("span", { class: "dim" }, `, retention ${span(one.retention_ms)}`),
      one.ttl_ms == null ? null : h("span", { class: "dim" }, `, rows live ${span(one.ttl_ms)}`),
    ],
    count(one.rows),
    bytes(one.bytes),
    [count(one.l0_runs), h("span", { class: "dim" }, ` of ${count(one.l0_stall_runs)}`)],
    one.last_epoch ? moment(epochMs(one.last_epoch), now) : "never",
    levels(one),
  ]);
  const columns = [
    ["Table"], ["Kind", "short"], ["Row versions", "number"], ["Size", "number"], ["L0 runs", "number"], ["Newest epoch", "time"],
    ["Levels", "wide"],
  ];
  return [table("Tables of the store", columns, rows), rest(shown.length, found.length)];
}

export function compaction({ now_ms: now, compaction: { tasks } }) {
  if (!tasks.length) return [empty("No compaction runs.")];
  const rows = tasks.slice(0, ROWS_MAX).map((task) => {
    const share = task.rows ? task.rows_read / task.rows : 0;
    return [
      h("span", { class: "name" }, task.table),
      task.kind,
      [plural(task.runs, "run") + (task.kind === "history" ? "" : ` to L${task.target_level}`), h("span", { class: "dim" }, `, ${plural(task.ssts, "SST")}`)],
      bytes(task.bytes),
      h("div", { class: "progress" }, bar(share, `${percent(share)} of the rows read`), h("span", {}, percent(share))),
      task.owner,
      moment(task.claimed_ms, now),
    ];
  });
  const columns = [["Table"], ["Kind"], ["Merges"], ["Input", "number"], ["Rows read", "wide"], ["Compactor"], ["Started", "time"]];
  return [table("Compaction tasks", columns, rows), rest(rows.length, tasks.length)];
}

export function nodes({ now_ms: now, replica: own, replicas, sessions }) {
  const metas = replicas.map((one) => [
    h("span", { class: "name" }, one.address),
    ["meta", h("span", { class: "dim" }, `, ${one.role}`)],
    one.address === own.address ? `this replica, started ${ago(own.started_ms, now)}` : "",
    "",
    "",
    one.address === own.address ? "now" : `${span(one.seen_age_ms)} ago`,
  ]);
  const shown = sessions.slice(0, ROWS_MAX);
  const others = shown.map((one) => {
    const late = one.heartbeat_age_ms > Math.max(one.lease_ms / 2, 3000);
    return [
      h("span", { class: "name" }, one.name || one.id),
      one.kind,
      [one.software, h("span", { class: "dim" }, ` session ${one.id}`)],
      one.slots ? `${one.tasks} / ${one.slots}` : "",
      one.pins ? count(one.pins) : "",
      h("span", { class: late ? "bad-text" : null }, `${span(one.heartbeat_age_ms)} ago`),
    ];
  });
  const columns = [["Node"], ["Role"], ["What"], ["Tasks / slots", "number"], ["Pins", "number"], ["Heartbeat", "time"]];
  return [
    table("Replicas, clients and compactors", columns, [...metas, ...others]),
    sessions.length ? rest(shown.length, sessions.length)
      : empty(own.role === "leader" ? "No client and no compactor is connected." : "The leader knows which clients and compactors are connected."),
  ];
}

export function checkpoints({ now_ms: now, checkpoints: jobs }) {
  if (!jobs.length) return [empty("No job has joined a checkpoint.")];
  const rows = jobs.map((job) => [
    h("span", { class: "name" }, job.job),
    [job.state, job.reason ? h("span", { class: "dim" }, `, ${job.reason}`) : null],
    count(job.barrier),
    job.barrier_age_ms ? span(job.barrier_age_ms) : "none",
    epoch(job.committed_epoch, now),
    h(
      "ul",
      { class: "workers" },
      job.participants.map((one) => {
        const state = !one.connected ? "gone" : one.collected ? "collected" : "working";
        return h("li", { class: state, title: `${one.name}: ${state}` }, one.name);
      }),
      h("li", { class: "dim" }, `${job.participants.filter((one) => one.connected).length} of ${job.expected}`),
    ),
  ]);
  return [table("Jobs that commit together", [["Job"], ["State"], ["Barrier", "number"], ["Under way", "time"], ["Checkpoint"], ["Participants", "wide"]], rows)];
}

export function pins({ now_ms: now, pins: all }) {
  if (!all.length) return [empty("Nobody holds a pin.")];
  const rows = all.slice(0, ROWS_MAX).map((pin) => [epoch(pin.epoch, now), pin.owner, moment(pin.created_ms, now), `${span(pin.expires_ms - now)}`]);
  return [table("Pinned epochs", [["Epoch"], ["Owner"], ["Since", "time"], ["Lease left", "time"]], rows), rest(rows.length, all.length)];
}

export function backups({ now_ms: now, backups: all }) {
  if (!all.length) return [empty("No backups. tussock backup create makes one.")];
  const rows = all.slice(0, ROWS_MAX).map((one) => [
    h("span", { class: "name", title: one.comment || null }, one.name), epoch(one.epoch, now), bytes(one.bytes), moment(one.created_ms, now),
  ]);
  return [table("Backups", [["Backup"], ["Epoch"], ["Size", "number"], ["Made", "time"]], rows), rest(rows.length, all.length)];
}

/** Nothing, as a rule; the heading is hidden with it. */
export function losses({ now_ms: now, losses: all }) {
  const rows = all.slice(0, ROWS_MAX).map((one) => [
    h("span", { class: "name" }, one.table),
    [count(one.rows), one.history ? h("span", { class: "dim" }, " of history") : null],
    bytes(one.bytes),
    epoch(one.max_epoch, now),
    [h("code", {}, one.sst), h("span", { class: "dim" }, one.kept ? ", kept" : ", discarded")],
    one.by,
    moment(one.at_ms, now),
  ]);
  const columns = [["Table"], ["Rows lost", "number"], ["Size", "number"], ["Newest epoch"], ["Damaged SST"], ["Accepted by"], ["When", "time"]];
  return rows.length ? [table("Losses that a repair was allowed to make", columns, rows), rest(rows.length, all.length)] : [];
}

export function upkeep({ now_ms: now, version, upkeep: { vacuum, next_vacuum_ms: next } }) {
  let last = "not yet";
  if (vacuum) {
    const did = vacuum.error || `${plural(vacuum.deleted, "object")} deleted, ${bytes(vacuum.bytes_freed)} freed, ${count(vacuum.kept_young)} too young`;
    last = [moment(vacuum.finished_ms, now), `: ${did}`];
  }
  const facts = [
    ["Log sequence", [count(version.seq), h("span", { class: "dim" }, `, read to the tail ${span(version.synced_age_ms)} ago`)]],
    ["Committed epoch", epoch(version.max_committed_epoch, now)],
    ["Safe epoch", epoch(version.safe_epoch, now)],
    ["Compacted epoch", epoch(version.compacted_epoch, now)],
    ["Retention", span(version.retention_ms)],
    ["Garbage grace", span(version.gc_grace_ms)],
    ["Garbage horizon", version.gc_horizon ? h("code", {}, version.gc_horizon) : "none yet"],
    ["Waiting for vacuum", plural(version.dropped_ssts, "SST")],
    ["Writers remembered", count(version.writers)],
    ["Last vacuum", last],
    ["Next vacuum", next ? `in ${span(next - now)}` : "not scheduled"],
  ];
  return facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]);
}
