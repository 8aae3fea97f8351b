// The console: asks for the status once a second and shows it. No state but the last status and, if the service asks
// for one, a token in this tab's session storage.

import { Chart } from "./charts.js";
import { h, show } from "./dom.js";
import { bytes, count, parseExactly, plural, rate, span } from "./format.js";
import * as views from "./views.js";

const POLL_MS = 1000;
const ANSWER_MS_MAX = 5000;
const FILTER_FROM = 8;
const TOKEN = "tussock-token";

const at = (id) => document.getElementById(id);
const commitsChart = new Chart(at("commits-chart"), at("commits-legend"), [
  { label: "epochs", color: "--accent", fill: "--accent-soft" },
  { label: "commits", color: "--second" },
], { format: rate, least: 10 });
const bytesChart = new Chart(at("bytes-chart"), at("bytes-legend"), [
  { label: "SSTs", color: "--accent", fill: "--accent-soft" },
], { format: (value) => bytes(Math.round(value)), least: 4096, binary: true });

let status = null;
let answeredAt = performance.now();
let timer = 0;

/** The service refused: it wants a token, or another one. */
class Refused extends Error {}

async function ask() {
  const token = sessionStorage.getItem(TOKEN);
  const response = await fetch("api/status", {
    headers: token ? { Authorization: `Bearer ${token}` } : {},
    cache: "no-store",
    signal: AbortSignal.timeout(ANSWER_MS_MAX),
  });
  const text = await response.text();
  if (response.status === 401 || response.status === 403) throw new Refused(text ? JSON.parse(text).message : "");
  if (!response.ok) throw new Error(`the service answered ${response.status}`);
  return parseExactly(text);
}

async function poll() {
  clearTimeout(timer);
  try {
    status = await ask();
    answeredAt = performance.now();
    render();
    connected();
  } catch (error) {
    if (error instanceof Refused) {
      askForToken(error.message);
      return;
    }
    lost(error);
  }
  // A hidden page asks again when it is seen.
  if (!document.hidden) timer = setTimeout(poll, POLL_MS);
}

function connected() {
  at("connection").hidden = true;
  at("main").classList.remove("stale");
  at("main").setAttribute("aria-busy", "false");
  at("forget").hidden = !sessionStorage.getItem(TOKEN);
}

function lost(error) {
  const since = span(performance.now() - answeredAt);
  const why = error.name === "TimeoutError" ? `no answer within ${ANSWER_MS_MAX / 1000} s` : error.message;
  const what = status ? `What you see is ${since} old.` : "";
  show(at("connection"), h("b", {}, "Connection lost"), ` for ${since} (${why}). ${what} Trying again every second.`);
  at("connection").hidden = false;
  at("main").classList.toggle("stale", status !== null);
}

function askForToken(why) {
  const had = sessionStorage.getItem(TOKEN);
  sessionStorage.removeItem(TOKEN);
  show(at("token-why"), had ? `The token was refused: ${why}` : "");
  at("token-dialog").showModal();
  at("token").focus();
}

function render() {
  const { tables, compaction, sessions, replicas, pins, backups, losses, checkpoints, rates, problems } = status;
  const errors = problems.filter(({ severity }) => severity === "error").length;
  document.title = `${errors ? `(${errors}) ` : ""}Tussock ${status.store_url}`;
  show(at("store"), status.store_url);
  show(at("replica"), views.replica(status));
  show(at("problems"), views.problems(problems));
  show(at("figures"), views.figures(status));
  commitsChart.update(rates.end_ms, [rates.epochs, rates.commits]);
  bytesChart.update(rates.end_ms, [rates.bytes]);
  renderTables();
  // A store that has lost nothing says nothing of it.
  at("losses").hidden = !losses.length;
  show(at("losses-list"), views.losses(status));
  show(at("losses-count"), count(losses.length));
  show(at("compaction-list"), views.compaction(status));
  show(at("nodes-list"), views.nodes(status));
  show(at("checkpoints-list"), views.checkpoints(status));
  show(at("pins-list"), views.pins(status));
  show(at("backups-list"), views.backups(status));
  show(at("upkeep"), views.upkeep(status));
  const paused = compaction.paused ? "paused, " : "";
  show(at("compaction-count"), `${paused}${plural(compaction.tasks.length, "task")}, ${plural(compaction.compactors, "compactor")} with ${plural(compaction.slots, "slot")}`);
  show(at("nodes-count"), count(replicas.length + sessions.length));
  show(at("checkpoints-count"), count(checkpoints.length));
  show(at("pins-count"), count(pins.length));
  show(at("backups-count"), count(backups.length));
  show(at("tables-count"), count(tables.length));
}

function renderTables() {
  const filter = at("tables-filter");
  filter.parentElement.hidden = status.tables.length < FILTER_FROM;
  show(at("tables-list"), views.tables(status, filter.value));
}

at("tables-filter").addEventListener("input", () => status && renderTables());
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && !at("token-dialog").open) poll();
});
at("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, at("token").value.trim());
  at("token").value = "";
  at("token-dialog").close();
  poll();
});
// Without a token there is nothing to see, so the question cannot be waved away.
at("token-dialog").addEventListener("cancel", (event) => event.preventDefault());
at("forget").addEventListener("click", () => {
  sessionStorage.removeItem(TOKEN);
  // What was shown goes with it.
  location.reload();
});
poll();
