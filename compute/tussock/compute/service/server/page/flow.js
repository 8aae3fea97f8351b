// The page of a flow: streams as a graph, one of them closely, and what a pause, a step or a breakpoint does.
// Of a fast stream it shows a sample, and says of how many changes.

import { arrowHead, ask, drawn, element, fill, find, number, post, table } from "./parts.js";

const BOX = { width: 200, height: 74, gapX: 64, gapY: 26, dot: 7 };
const NARROW = 700;
const SHOWN = 20;
const HISTORY_SHOWN = 10;

let status = null;
let chosen = null;
let follows = true;
let view = null;
let seen = null;
let before = 0;
let history = [];
let isLooking = false;

export function flowCounts(flow) {
  const sources = flow.streams.filter((one) => one.inputs.length === 0);
  const sum = (of, streams = flow.streams) => streams.reduce((total, one) => total + one[of], 0);
  const lag = Math.max(0, ...flow.streams.map((one) => one.subscriber_lag));
  return [
    ["Changes", `${number(Math.round(sum("rows_in_per_second", sources)))}/s`, `${number(sum("rows_in", sources))} came in`],
    ["Transactions", number(flow.flow_transactions), "of all streams"],
    ["Queued", number(sum("queued")), "transactions"],
    ["Bad", number(sum("bad")), "transactions"],
    ["Subscribers", number(sum("subscribers")), lag ? `${number(lag)} behind` : ""],
    ["Breakpoints", number(flow.breakpoints.length), `${number(flow.breakpoints.filter((one) => one.enabled).length)} enabled`],
  ];
}

export function showFlow(flow) {
  status = flow;
  const at = flow.paused_at;
  if (chosen === null || !stream(chosen)) chosen = flow.streams[0].name;
  // To where the flow stands, until somebody chooses another one.
  if (follows && at && at.stream) choose(at.stream);
  const point = at && at.breakpoint !== null ? `, by breakpoint ${at.breakpoint}` : "";
  const row = at && at.row !== null ? `, row ${at.row}` : "";
  const where = at && at.stream ? `Paused at ${at.stream}: ${at.location}${row}${point}.` : "Paused; nothing is on its way.";
  const steps = flow.auto_step ? ` It steps by itself each ${flow.auto_step.seconds} s.` : "";
  set("stands", at ? where + steps : "Running.");
  set("pause", at ? "Resume" : "Pause");
  set("auto", flow.auto_step ? "Stop stepping" : "Step by itself");
  for (const one of document.querySelectorAll(".in-pause")) one.disabled = !at;
  const width = find("streams").clientWidth;
  fill("streams", [flow.streams, flow.breakpoints, at, chosen, width < NARROW], () => [graph(flow, width < NARROW)]);
  if (!document.hidden) look();
}

function set(id, text) {
  if (find(id).textContent !== text) find(id).textContent = text;
}

const stream = (name) => status.streams.find((one) => one.name === name);

function choose(name) {
  if (name === chosen) return;
  chosen = name;
  view = seen = null;
  before = 0;
  history = [];
  for (const id of ["bad", "tried", "history", "newest"]) {
    find(id).replaceChildren();
    delete find(id).dataset.told;
  }
}

// --- The graph ---------------------------------------------------------------------------------------------------------

// The column of each stream: one more than that of the last one that it reads.
function places(streams, isNarrow) {
  const known = new Map();
  const byName = new Map(streams.map((one) => [one.name, one]));
  const depth = (name) => {
    if (!known.has(name)) known.set(name, Math.max(-1, ...byName.get(name).inputs.map(depth)) + 1);
    return known.get(name);
  };
  streams.forEach((one) => depth(one.name));
  const counts = [];
  const found = new Map();
  for (const one of streams) {
    const column = known.get(one.name);
    const row = counts[column] ?? 0;
    counts[column] = row + 1;
    const [across, down] = isNarrow ? [row, column] : [column, row];
    found.set(one.name, {
      x: 14 + across * (BOX.width + (isNarrow ? BOX.gapY : BOX.gapX)),
      y: 14 + down * (BOX.height + (isNarrow ? BOX.gapX / 1.5 : BOX.gapY)),
    });
  }
  return found;
}

function graph(flow, isNarrow) {
  const place = places(flow.streams, isNarrow);
  const parts = [arrowHead()];
  let [width, height] = [0, 0];
  for (const one of flow.streams) {
    const { x, y } = place.get(one.name);
    [width, height] = [Math.max(width, x + BOX.width + 14), Math.max(height, y + BOX.height + 14)];
    for (const input of one.inputs) parts.push(line(place.get(input), { x, y }, isNarrow));
  }
  for (const one of flow.streams) parts.push(box(one, place.get(one.name), flow), ...dots(one, place.get(one.name), flow, isNarrow));
  return drawn("svg", { width, height, role: "group", "aria-label": "Graph of streams" }, ...parts);
}

function line(from, to, isNarrow) {
  if (isNarrow) {
    const [x1, y1, x2] = [from.x + BOX.width / 2, from.y + BOX.height + BOX.dot, to.x + BOX.width / 2];
    const [y2, middle] = [to.y - BOX.dot, (y1 + to.y) / 2];
    return drawn("path", { d: `M${x1} ${y1} C${x1} ${middle} ${x2} ${middle} ${x2} ${y2}`, "marker-end": "url(#arrow)" });
  }
  const [x1, y1, y2] = [from.x + BOX.width + BOX.dot, from.y + BOX.height / 2, to.y + BOX.height / 2];
  const [x2, middle] = [to.x - BOX.dot, (x1 + to.x) / 2];
  return drawn("path", { d: `M${x1} ${y1} C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`, "marker-end": "url(#arrow)" });
}

function box(one, { x, y }, flow) {
  const isPaused = flow.paused_at?.stream === one.name;
  const share = Math.min(one.queued / one.queue, 1);
  const rate = `${number(Math.round(one.rows_in_per_second))} in, ${number(Math.round(one.rows_out_per_second))} out a second`;
  const short = one.name.length > 24 ? `${one.name.slice(0, 23)}\u2026` : one.name;
  const found = drawn(
    "g",
    {
      class: `stream${one.name === chosen ? " chosen" : ""}${isPaused ? " paused" : ""}`,
      role: "button",
      tabindex: 0,
      "data-key": `stream ${one.name}`,
      "aria-pressed": one.name === chosen,
      "aria-label": `Stream ${one.name}: ${one.location}, ${one.queued} of ${one.queue} queued, ${rate}`,
    },
    drawn("rect", { class: "box", x, y, width: BOX.width, height: BOX.height, rx: 6 }),
    drawn("text", { class: "name", x: x + 12, y: y + 19 }, short),
    drawn("text", { class: "note", x: x + BOX.width - 12, y: y + 19, "text-anchor": "end" }, one.held ? `${one.location}, held` : one.location),
    drawn("text", { class: "note", x: x + 12, y: y + 38 }, rate),
    drawn("rect", { class: "track", x: x + 12, y: y + 47, width: BOX.width - 24, height: 5, rx: 2 }),
    drawn("rect", { class: `queue${share >= 1 ? " full" : ""}`, x: x + 12, y: y + 47, width: (BOX.width - 24) * share, height: 5, rx: 2 }),
    drawn("text", { class: "note", x: x + 12, y: y + 66 }, `${number(one.queued)} of ${number(one.queue)} queued`),
  );
  return clickable(found, () => {
    follows = status.paused_at?.stream === one.name;
    choose(one.name);
    showFlow(status);
  });
}

function dots(one, { x, y }, flow, isNarrow) {
  const middle = { x: x + BOX.width / 2, y: y + BOX.height / 2 };
  const at = isNarrow
    ? { input: { x: middle.x, y }, output: { x: middle.x, y: y + BOX.height } }
    : { input: { x, y: middle.y }, output: { x: x + BOX.width, y: middle.y } };
  return ["input", "output"].map((side) => {
    const set = flow.breakpoints.filter((point) => point.stream === one.name && point.side === side);
    const state = set.some((point) => point.enabled) ? " set" : set.length ? " off" : "";
    const told = set.length ? `${set.length} breakpoint${set.length > 1 ? "s" : ""}; click to remove` : "set a breakpoint";
    const dot = drawn(
      "g",
      { class: `dot${state}`, role: "button", tabindex: 0, "data-key": `${side} ${one.name}`, "aria-label": `${side} of ${one.name}: ${told}` },
      drawn("circle", { cx: at[side].x, cy: at[side].y, r: BOX.dot }),
      drawn("title", {}, `${side} of ${one.name}: ${told}`),
    );
    return clickable(dot, async () => {
      if (set.length === 0) await act({ act: "break", stream: one.name, side, condition: "", every: 1 });
      for (const point of set) await act({ act: "change_break", number: point.number, how: "remove" });
    });
  });
}

function clickable(found, click) {
  found.addEventListener("click", click);
  found.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    click();
  });
  return found;
}

// --- What is done ------------------------------------------------------------------------------------------------------

function tell(text, isBad = false) {
  set("told", text);
  find("told").className = isBad ? "bad-text" : "dim";
}

// What a refusal means to somebody before a browser.
async function refusal(answer) {
  if (answer.status === 401) return "The token is not valid, or not any more.";
  if (answer.status === 403) return "This token may look, but not act: give one with the role admin.";
  return (await answer.json()).message;
}

async function act(what) {
  try {
    const answer = await post("act", what);
    if (!answer.ok) {
      tell(await refusal(answer), true);
      return undefined;
    }
    tell("");
    const found = await answer.json();
    const again = await ask("status");
    if (again.ok) showFlow(await again.json());
    return found;
  } catch {
    tell("The application does not answer.", true);
    return undefined;
  }
}

async function get(path) {
  const answer = await ask(path);
  if (answer.ok) return answer.json();
  tell(await refusal(answer), true);
  return undefined;
}

// --- One stream --------------------------------------------------------------------------------------------------------

async function look() {
  if (isLooking) return;
  isLooking = true;
  const name = chosen;
  try {
    const found = await get(`stream?name=${encodeURIComponent(name)}&records=${SHOWN}`);
    if (found && name === chosen) showStream(found);
    if (found && name === chosen && before === 0) await lookBack();
  } catch {
    // The status says that the node does not answer.
  } finally {
    isLooking = false;
  }
}

function showStream(found) {
  const now = performance.now();
  const one = stream(chosen);
  view = found;
  set("stream-title", `Stream ${chosen}`);
  set("hold", found.held ? "Release" : "Hold");
  fill("facts", [one, found.location], () => [facts(one, found)]);
  find("work").hidden = found.in_trans === null && found.out_trans === null;
  fill("work-in", [found.in_trans, found.row], () => coming(found));
  fill("work-out", [found.out_trans, found.out_row, found.location], () => computed(found));
  const shown = found.newest.slice().reverse();
  if (seen) {
    const [count, seconds] = [found.rows_out - seen.rows, (now - seen.at) / 1000];
    const fresh = Math.min(count, shown.length);
    const lately = `since the last look, ${seconds.toFixed(1)} s before`;
    if (count > fresh) set("sample", `A sample: ${number(fresh)} of ${many(count, "change")} ${lately}.`);
    else set("sample", `${count ? many(count, "change") : "No change"} ${lately}; all are shown, and some before them.`);
  } else {
    set("sample", `At most ${SHOWN} changes a second are shown; of more, a sample.`);
  }
  seen = { rows: found.rows_out, at: now };
  fill("newest", shown, () => [records(shown, { first: (record) => number(record.seq), head: "number" })]);
  fill("breakpoints", found.breakpoints, () => [breakpoints(found.breakpoints)]);
}

function facts(one, found) {
  const columns = one.columns.map((column) => `${column.name} ${column.type}`).join(", ");
  const rows = [
    ["Location", found.held ? `${found.location}, held` : found.location],
    ["Reads", one.inputs.join(", ") || "what is pushed to it"],
    ["Key", one.key.join(", ")],
    ["Columns", columns],
    ["Taken, published", `${number(one.taken)}, ${number(one.published)} transactions; kept from ${number(one.oldest_kept)} on`],
    ["Bad", number(one.bad)],
    ["Held back", number(one.held_back)],
    ["Subscribers", `${number(one.subscribers)}, the slowest ${number(one.subscriber_lag)} behind`],
  ];
  return element("dl", {}, ...rows.flatMap(([name, text]) => [element("dt", { textContent: name }), element("dd", { textContent: text })]));
}

const text = (value) => (value === null || value === undefined ? "null" : typeof value === "string" ? value : JSON.stringify(value));

// A value beside what it was.
function changed(record, name) {
  const [now, old] = [record.row[name], record.old?.[name]];
  if (!record.old || text(now) === text(old)) return [text(now)];
  const isGone = record.op === "DELETE" || record.op === "SAFEDELETE";
  if (isGone) return [element("del", { textContent: text(old) })];
  return [element("del", { textContent: text(old) }), " \u2192 ", element("ins", { textContent: text(now) })];
}

// Records with old and new values side by side; `first` says what is in the first column.
function records(rows, { first, head, current = () => false, empty = "none" }) {
  if (rows.length === 0) return element("p", { className: "dim", textContent: empty });
  const names = [...new Set(rows.flatMap((record) => Object.keys(record.row)))];
  const line = (record, at) => {
    const cells = names.map((name) => element("td", {}, ...changed(record, name)));
    const made = element("tr", {}, element("td", { className: "figure", textContent: first(record, at) }), element("td", { className: "op", textContent: record.op }), ...cells);
    if (current(record, at)) made.setAttribute("aria-current", "step");
    return made;
  };
  const heads = [head, "", ...names].map((name, at) => element("th", { className: at ? "" : "figure", textContent: name }));
  const made = element("table", { className: "records" }, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows.map(line)));
  return element("div", { className: "scroll" }, made);
}

const many = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;

function of(part) {
  return part.records.length < part.count ? `; ${number(part.records.length)} shown` : "";
}

function coming(found) {
  const into = found.in_trans;
  if (into === null) return [];
  const told = `Transaction ${number(into.seq)} came in, ${many(into.count, "record")}${of(into)}:`;
  const row = found.row === null ? -1 : found.row - into.start;
  const options = { first: (_, at) => number(into.start + at), head: "row", current: (_, at) => at === row };
  return [element("p", { textContent: told }), records(into.records, options)];
}

function computed(found) {
  const out = found.out_trans;
  if (out === null) return [];
  const told = `Computed so far, ${many(out.count, "record")}${of(out)}, beside what the store has:`;
  const options = { first: (_, at) => number(out.start + at), head: "row", empty: "nothing yet" };
  return [element("p", { textContent: told }), records(out.records, options)];
}

function button(label, click, key) {
  const made = element("button", { type: "button", textContent: label });
  made.dataset.key = key;
  made.addEventListener("click", click);
  return made;
}

function breakpoints(points) {
  const rows = points.map((one) => {
    const change = (how) => () => act({ act: "change_break", number: one.number, how });
    const acts = element("span", { className: "tools" }, button(one.enabled ? "Disable" : "Enable", change(one.enabled ? "disable" : "enable"), `able ${one.number}`), button("Remove", change("remove"), `remove ${one.number}`));
    const every = one.every > 1 ? `, each ${number(one.every)}th` : "";
    return [number(one.number), one.side, `${one.condition || "each record"}${every}${one.error ? `; ${one.error}` : ""}`, number(one.hits), acts];
  });
  return table(["#number", "on", "condition", "#hits", ""], rows, "none");
}

// --- Histories ---------------------------------------------------------------------------------------------------------

async function lookBack() {
  const side = find("side").value;
  const found = await get(`history?stream=${encodeURIComponent(chosen)}&side=${side}&before=${before}&count=${HISTORY_SHOWN}`);
  if (found === undefined || side !== find("side").value) return;
  history = found.reverse();
  find("newer").disabled = find("latest").disabled = before === 0;
  find("older").disabled = history.length < HISTORY_SHOWN;
  const open = new Set([...document.querySelectorAll("#history details[open]")].map((one) => one.dataset.seq));
  fill("history", [chosen, side, history], () => history.length
    ? history.map((one) => transaction(one, side, open.has(String(one.seq))))
    : [element("p", { className: "dim", textContent: "none" })]);
}

function transaction(one, side, isOpen) {
  const line = element("summary", {}, `${number(one.seq)}: ${many(one.count, "record")}, ${new Date(one.time).toISOString()}`);
  if (side === "taken") line.append(button("What if", () => whatIf({ stream: chosen, seq: one.seq }), `try ${one.seq}`));
  const made = element("details", { open: isOpen }, line, element("p", { className: "dim", textContent: of(one).slice(2) }), records(one.records, { first: (_, at) => number(one.start + at), head: "row" }));
  made.dataset.seq = one.seq;
  line.dataset.key = `transaction ${one.seq}`;
  return made;
}

function scrollTo(seq) {
  before = seq;
  lookBack();
}

// --- Bad transactions, and tries -----------------------------------------------------------------------------------------

async function lookAtBad() {
  const found = await get(`bad-rows?stream=${encodeURIComponent(chosen)}`);
  if (found === undefined) return;
  const rows = found.reverse().map((one) => {
    const again = async () => {
      if ((await act({ act: "replay_bad", number: one.number })) !== undefined) await lookAtBad();
    };
    const acts = one.is_kept ? [button("What if", () => whatIf({ bad: one.number }), `try ${one.number}`), button("Replay", again, `again ${one.number}`)] : [];
    const where = `${one.source || "push"} ${number(one.seq)}, ${one.location}${one.row === null ? "" : `, row ${number(one.row)}`}`;
    return [number(one.number), where, one.error, element("span", { className: "tools" }, ...acts)];
  });
  find("bad").replaceChildren(table(["#number", "transaction", "cause", ""], rows, "none"));
}

async function whatIf(which) {
  const found = await act({ act: "what_if", ...which });
  if (found === undefined) return;
  const part = (title, one) => one === null ? [] : [
    element("h3", { textContent: `${title}, ${many(one.count, "record")}${of(one)}` }),
    records(one.records, { first: (_, at) => number(one.start + at), head: "row", empty: "nothing" }),
  ];
  const isSame = found.was !== null && JSON.stringify(found.was.records) === JSON.stringify(found.published.records);
  const told = found.error
    ? `Transaction ${number(found.taken.seq)} of ${found.stream} would be bad, in ${found.location}${found.row === null ? "" : `, row ${number(found.row)}`}: ${found.error}`
    : `Transaction ${number(found.taken.seq)} of ${found.stream} would publish ${isSame ? "what it has published." : "this."}`;
  find("tried").replaceChildren(
    element("p", { textContent: told, className: found.error ? "bad-text" : "" }),
    ...part("Came in", found.taken),
    ...part("Computed", found.computed),
    ...(found.error ? [] : part("Would be published", found.published)),
    ...(isSame ? [] : part("Was published", found.was)),
  );
  find("tried-title").scrollIntoView({ block: "nearest" });
}

// --- Buttons -------------------------------------------------------------------------------------------------------------

const stepped = () => (status.paused_at?.stream === chosen || follows ? "" : chosen);

find("pause").addEventListener("click", () => act({ act: status.paused_at ? "resume" : "pause" }));
for (const one of document.querySelectorAll("[data-act=step]")) {
  one.addEventListener("click", () => act({ act: "step", what: one.dataset.what, stream: stepped() }));
}
find("quiesce").addEventListener("click", () => act({ act: "quiesce", how: find("quiesce-how").value, stream: chosen }));
find("auto").addEventListener("click", () => act({ act: "auto_step", seconds: status.auto_step ? 0 : Number(find("auto-seconds").value), what: "row" }));
find("hold").addEventListener("click", () => act({ act: "hold", stream: chosen, is_held: !view?.held }));
find("break").addEventListener("submit", async (event) => {
  event.preventDefault();
  const wanted = { stream: chosen, side: find("break-side").value, condition: find("break-condition").value.trim(), every: Number(find("break-every").value) };
  if ((await act({ act: "break", ...wanted })) !== undefined) find("break-condition").value = "";
});
find("side").addEventListener("change", () => scrollTo(0));
find("older").addEventListener("click", () => scrollTo(Math.max((history.at(-1)?.seq ?? 1) - 1, 1)));
find("newer").addEventListener("click", () => scrollTo(Math.max((history[0]?.seq ?? 0) + HISTORY_SHOWN, 1)));
find("latest").addEventListener("click", () => scrollTo(0));
find("look-bad").addEventListener("click", lookAtBad);
