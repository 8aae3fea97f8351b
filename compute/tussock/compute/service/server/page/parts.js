// What all layers' pages are made of: elements, tables, figures, and questions to the node. All text goes in as text.

const SVG = "http://www.w3.org/2000/svg";

export const find = (id) => document.getElementById(id);
export const number = (value) => Number(value ?? 0).toLocaleString("en");

export const time = (ms) =>
  ms >= 1000 ? `${(ms / 1000).toFixed(1)} s` : ms >= 1 ? `${ms.toFixed(1)} ms` : `${Math.round(1000 * ms)} \u00b5s`;

export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

export function drawn(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// The head of an arrow, for the lines of a drawing.
export function arrowHead() {
  return drawn(
    "defs",
    {},
    drawn(
      "marker",
      { id: "arrow", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto" },
      drawn("path", { d: "M0 0 L8 4 L0 8 z" }),
    ),
  );
}

// Names break behind their parts, before they break within a word.
function breakable(text) {
  if (typeof text !== "string") return [text];
  return text.split(/(?<=[._/])(?=[A-Za-z])/).flatMap((part, at) => (at ? [element("wbr"), part] : [part]));
}

export function table(columns, rows, empty) {
  if (rows.length === 0) return element("p", { className: "dim", textContent: empty });
  const cell = (kind, at, text) =>
    element(kind, { className: columns[at].startsWith("#") ? "figure" : "" }, ...breakable(text));
  const head = element("tr", {}, ...columns.map((name, at) => cell("th", at, name.replace("#", ""))));
  const body = rows.map((row) => element("tr", {}, ...row.map((text, at) => cell("td", at, text))));
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
}

// Replaces what is in a place, but not while it is the same, nor under a finger: a button that is replaced is not
// clicked. The focus stays with what has the same `data-key`.
export function fill(id, told, make) {
  const place = find(id);
  const text = JSON.stringify(told);
  if (place.dataset.told === text || place.matches(":active")) return;
  place.dataset.told = text;
  const key = place.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  place.replaceChildren(...make());
  if (key) place.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
}

function headers(more = {}) {
  const token = sessionStorage.getItem("token");
  return token ? { Authorization: `Bearer ${token}`, ...more } : more;
}

export const ask = (path) => fetch(path, { headers: headers() });

// `X-Tussock` makes the browser ask first on behalf of other sites' pages, which the node refuses.
export const post = (path, body) =>
  fetch(path, {
    method: "POST",
    headers: headers({ "Content-Type": "application/json", "X-Tussock": "1" }),
    body: JSON.stringify(body),
  });
