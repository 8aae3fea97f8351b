// The page of one application: asks for `/status` each second and shows it. All text goes in as text.

import { arrowHead, ask, drawn, element, fill, find, number, table, time } from "./parts.js";
import { flowCounts, showFlow } from "./flow.js";

const POLL_MS = 1000;
const TRACE_SHOWN = 12;
const CALLS_DRAWN = 100;
const BOX = { width: 190, height: 46, gapX: 90, gapY: 18 };

// The column of each procedure: one more than that of the last one whose stream it consumes.
function depths(procedures) {
  const source = new Map(procedures.flatMap((one) => one.emits.map((stream) => [stream, one.name])));
  const byName = new Map(procedures.map((one) => [one.name, one]));
  const known = new Map();
  const depth = (name) => {
    if (!known.has(name)) {
      const before = byName.get(name).consumes.map((stream) => source.get(stream)).filter(Boolean);
      known.set(name, before.length ? 1 + Math.max(...before.map(depth)) : 0);
    }
    return known.get(name);
  };
  procedures.forEach((one) => depth(one.name));
  return { known, source };
}

function graph(procedures) {
  if (procedures.length === 0) return element("p", { className: "dim", textContent: "none" });
  const { known, source } = depths(procedures);
  const rows = [];
  const place = new Map();
  for (const one of procedures) {
    const column = known.get(one.name);
    const row = rows[column] ?? 0;
    rows[column] = row + 1;
    place.set(one.name, { x: 4 + column * (BOX.width + BOX.gapX), y: 4 + row * (BOX.height + BOX.gapY) });
  }
  const width = rows.length * (BOX.width + BOX.gapX) - BOX.gapX + 8;
  const height = Math.max(...rows) * (BOX.height + BOX.gapY) - BOX.gapY + 8;
  const parts = [arrowHead()];
  for (const one of procedures) {
    const { x, y } = place.get(one.name);
    for (const stream of one.consumes) {
      const from = place.get(source.get(stream));
      if (!from) continue;
      const [x1, y1, y2] = [from.x + BOX.width, from.y + BOX.height / 2, y + BOX.height / 2];
      const middle = (x1 + x) / 2;
      parts.push(drawn("path", { d: `M${x1} ${y1} C${middle} ${y1} ${middle} ${y2} ${x} ${y2}`, "marker-end": "url(#arrow)" }));
      parts.push(drawn("text", { class: "note", x: middle, y: (y1 + y2) / 2 - 5, "text-anchor": "middle" }, stream));
    }
    const box = { x, y, width: BOX.width, height: BOX.height, rx: 6, class: one.border ? "border" : "inner" };
    parts.push(drawn("rect", box));
    parts.push(drawn("text", { x: x + 10, y: y + 19 }, one.name));
    const told = one.border ? `border, batch ${number(one.last_batch)}` : "";
    parts.push(drawn("text", { class: "note", x: x + 10, y: y + 36 }, told));
  }
  return drawn("svg", { width, height, role: "img", "aria-label": "Graph of procedures" }, ...parts);
}

// Of functions: epochs, and how their transactions ended.
function phases(status) {
  const batched = status.batched ? `${number(status.batched)} in batches` : "";
  return [
    ["Epochs", number(status.epochs), `newest ${number(status.epoch)}`],
    ["Lock-free", number(status.lock_free), batched],
    ["Lock phase", number(status.locked), ""],
    ["Aborted", number(status.aborted), ""],
    ["Deferrals", number(status.deferrals), `${number(status.deferred)} wait`],
    ["Stopped", number(status.stopped), "by the time limit"],
  ];
}

function counts(status) {
  const uptime = Math.max(0, Math.round((status.now_ms - status.started_ms) / 1000));
  return [
    ...(status.layer === "functions" ? phases(status) : []),
    ...(status.layer === "changelog" ? flowCounts(status) : []),
    ...(status.workers ? [["Workers", number(status.workers_joined), `${number(status.workers)} wanted`]] : []),
    ["Waiting", number(status.waiting), "not begun"],
    ["Outstanding", number(status.outstanding), `${number(status.outstanding_bytes)} bytes`],
    ["Conversations", number(status.conversations), ""],
    ["Records", number(status.records), `${number(status.log_writes)} writes of the log`],
    ["Commits", number(status.commits), `store epochs; ${number(status.uncommitted)} records in none yet`],
    ["Up for", `${number(uptime)} s`, `Tussock ${status.version}`],
  ].map(([name, value, note]) =>
    element("div", {}, element("dt", { textContent: name }), element("dd", { textContent: `${value} ` }, element("span", { textContent: note }))),
  );
}

function functions(status) {
  const transactions = (status.transactions ?? []).slice(-TRACE_SHOWN).reverse();
  const lines = transactions.map((one) => [
    number(one.tid), `${one.operator} ${one.key}: ${one.function}`, number(one.calls), one.error ? `${one.phase}: ${one.error}` : one.phase,
  ]);
  fill("transactions", lines, () => {
    const rows = lines.map(([tid, ...rest], at) => [toCalls(transactions[at].tid, tid), ...rest]);
    return [table(["#number", "function", "#calls", "phase"], rows, "none yet")];
  });
  const feeds = Object.entries(status.feeds ?? {}).map(([name, one]) => [name, number(one.rows), one.trouble]);
  find("feeds").replaceChildren(table(["feed", "#rows", "trouble"], feeds, "none"));
  const hot = (status.hot ?? []).map(([operator, key, count]) => [operator, String(key), number(count)]);
  find("hot").replaceChildren(table(["operator", "key", "#lost here"], hot, "none"));
  const slow = (status.function_times ?? []).map((one) => [
    `${one.operator}.${one.function}${one.stopped ? `, stopped by the time limit: ${number(one.stopped)}` : ""}`,
    one.calls ? `~${number(one.calls)}` : "", time(one.median_ms), time(one.largest_ms), `${(100 * one.share).toFixed(1)} %`,
  ]);
  find("slow").replaceChildren(table(["function", "#calls", "#median", "#largest", "#share"], slow, "none yet"));
}

// The number of a transaction, which shows its call graph.
function toCalls(tid, textContent) {
  const button = element("button", { type: "button", className: "link", title: "Show its call graph", textContent });
  button.addEventListener("click", async () => {
    find("which").value = tid;
    await showCalls(() => lookAtCalls("tid", tid));
    find("calls-title").scrollIntoView({ block: "nearest" });
  });
  return button;
}

// The calls of one transaction, each a step behind the call that made it, in the order of the calls.
function drawnCalls(calls) {
  const box = { width: 210, height: 40, step: 34, gapY: 10 };
  const depth = [];
  calls.forEach((one, at) => { depth[at] = one.caller < 0 ? 0 : depth[one.caller] + 1; });
  const place = (at) => ({ x: 4 + depth[at] * box.step, y: 4 + at * (box.height + box.gapY) });
  const parts = [];
  calls.forEach((one, at) => {
    const { x, y } = place(at);
    if (one.caller >= 0) {
      const from = place(one.caller);
      const [turn, end] = [from.x + box.step / 2, y + box.height / 2];
      const line = one.is_awaited ? "awaited" : "fired";
      parts.push(drawn("path", { class: line, d: `M${turn} ${from.y + box.height} V${end} H${x}` }));
    }
    parts.push(drawn("rect", { x, y, width: box.width, height: box.height, rx: 6, class: one.caller < 0 ? "border" : "inner" }));
    const named = `${one.operator} ${one.key}`;
    parts.push(drawn("text", { x: x + 10, y: y + 17 }, named.length > 30 ? `${named.slice(0, 29)}\u2026` : named));
    const told = `${one.function}, ${one.share}${one.is_awaited ? ", awaited" : ""}`;
    parts.push(drawn("text", { class: "note", x: x + 10, y: y + 33 }, told.length > 36 ? `${told.slice(0, 35)}\u2026` : told));
  });
  const width = 8 + Math.max(...depth) * box.step + box.width;
  const height = 8 + calls.length * (box.height + box.gapY) - box.gapY;
  return drawn("svg", { width, height, role: "img", "aria-label": "Call graph" }, ...parts);
}

function callGraph(found) {
  if (found === null) return [element("p", { className: "dim", textContent: "not among the newest transactions" })];
  const told = `Transaction ${number(found.tid)}, epoch ${number(found.epoch)}, ${found.phase}, ${number(found.runs)} run${found.runs === 1 ? "" : "s"}. ${found.error}`;
  const more = found.calls.length > CALLS_DRAWN ? ` The first ${CALLS_DRAWN} of ${number(found.calls.length)} calls:` : "";
  return [element("p", { textContent: told + more }), element("div", { className: "drawing" }, drawnCalls(found.calls.slice(0, CALLS_DRAWN)))];
}

function procedures(status) {
  find("graph").replaceChildren(graph(status.procedures ?? []));
  const windows = (status.windows ?? []).map((one) => [
    one.name, one.stream, `${number(one.visible)} of ${number(one.size)} ${one.of}`, `${number(one.staged)} of ${number(one.slide)}`,
  ]);
  find("windows").replaceChildren(table(["window", "stream", "#visible", "#staged"], windows, "none"));
  const trace = (status.trace ?? []).slice(-TRACE_SHOWN).map(([name, batch]) => [name, batch === null ? "call" : number(batch)]).reverse();
  find("trace").replaceChildren(table(["procedure", "#batch"], trace, "none yet"));
}

function show(status) {
  for (const layer of ["procedures", "functions", "changelog"]) {
    for (const one of document.querySelectorAll(`.of-${layer}`)) one.hidden = layer !== status.layer;
  }
  find("failed").hidden = false;
  if (status.layer === "functions") functions(status);
  if (status.layer === "procedures") procedures(status);
  if (status.layer === "changelog") showFlow(status);
  document.title = `${status.application} - Tussock`;
  find("name").textContent = `${status.application} (${status.layer}${status.recovery ? `, ${status.recovery} recovery` : ""})`;
  find("state").textContent = status.state;
  find("state").className = `pill ${{ running: "good", failed: "bad" }[status.state] ?? "warn"}`;
  find("store").textContent = status.store;
  const waits = status.trouble.map((one) => `${one.what}, since ${new Date(one.since_ms).toISOString()}: ${one.error}`);
  trouble([status.failure, ...waits].filter(Boolean).join("\n"));
  find("counts").replaceChildren(...counts(status));
  const failures = status.failures.map((one) => [
    new Date(one.ms).toISOString(), one.kind, one.raised || one.error, one.at ? `${one.text} (${one.at})` : one.text,
  ]).reverse();
  find("failures").replaceChildren(table(["time", "request", "error", "text"], failures, "none"));
}

function trouble(text) {
  find("trouble").textContent = text;
  find("trouble").hidden = !text;
}

// What a refusal means to somebody before a browser: the service speaks to programs. Before the first token nothing is wrong.
function refusal(status) {
  if (status === 401) return sessionStorage.getItem("token") ? "The token is not valid, or not any more: give another one." : "";
  return status === 403 ? "This token may not look at the application: give one with a role." : undefined;
}

async function lookAtCalls(name, which) {
  const answer = await ask(`call-graph?${name}=${encodeURIComponent(which)}`);
  if (!answer.ok) throw new Error();
  return answer.json();
}

async function showCalls(look) {
  try {
    find("calls").replaceChildren(...callGraph(await look()));
  } catch {
    find("calls").replaceChildren(element("p", { className: "dim", textContent: "The application does not tell." }));
  }
}

async function poll() {
  try {
    const answer = await ask("status");
    find("ask").hidden = answer.status !== 401 && answer.status !== 403;
    if (answer.ok) show(await answer.json());
    else trouble(refusal(answer.status) ?? (await answer.json()).message);
  } catch {
    trouble("The application does not answer.");
  }
  setTimeout(poll, POLL_MS);
}

find("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", find("token").value);
  find("token").value = "";
});
find("calls-of").addEventListener("submit", (event) => {
  event.preventDefault();
  const which = find("which").value.trim();
  // The ids of a feed may be numbers, too.
  const isNumber = /^[0-9]{1,18}$/.test(which);
  showCalls(async () => (await lookAtCalls("request_id", which)) ?? (isNumber ? lookAtCalls("tid", which) : null));
});
poll();
