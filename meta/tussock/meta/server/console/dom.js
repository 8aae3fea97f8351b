// Building and mending the page. Text goes in as text, never as markup: names of tables, writers and compactors are
// whatever their users chose.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "rect"]);

/** An element with attributes and children; a child is an element or text, and `null` or `false` is left out. */
export function h(tag, attributes = {}, ...children) {
  const element = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== false) element.append(child);
  }
  return element;
}

/**
 * Make the children of `target` those given, touching only what differs, so that a selection, a focus and a scroll
 * position last from one status to the next.
 */
export function show(target, ...children) {
  const wanted = h("div", {}, ...children);
  patchChildren(target, wanted);
}

function patchChildren(target, wanted) {
  const fresh = [...wanted.childNodes];
  while (target.childNodes.length > fresh.length) target.lastChild.remove();
  fresh.forEach((child, index) => {
    const old = target.childNodes[index];
    if (old === undefined) target.append(child);
    else if (old.nodeType !== child.nodeType || old.nodeName !== child.nodeName) old.replaceWith(child);
    else if (child.nodeType === Node.TEXT_NODE) {
      if (old.data !== child.data) old.data = child.data;
    } else {
      patchAttributes(old, child);
      patchChildren(old, child);
    }
  });
}

function patchAttributes(old, wanted) {
  for (const name of old.getAttributeNames()) {
    if (!wanted.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const name of wanted.getAttributeNames()) {
    const value = wanted.getAttribute(name);
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
}

/** A bar filled by `share` (0 to 1) of its width; anything above nothing is seen. */
export function bar(share, label, kind = "") {
  const width = share > 0 ? Math.max(Math.min(share, 1) * 100, 0.8) : 0;
  return h(
    "svg",
    { class: `bar ${kind}`.trim(), role: "img", "aria-label": label, "data-share": share.toFixed(4) },
    h("rect", { class: "track", width: "100%", height: "100%" }),
    h("rect", { class: "fill", width: `${width.toFixed(2)}%`, height: "100%" }),
  );
}

/**
 * A table with a head. `columns` are `[title, class]`; `rows` are arrays of cells, each text or an element. On narrow
 * screens a row becomes a card, and each cell says its column's title.
 */
export function table(caption, columns, rows) {
  return h(
    "table",
    {},
    h("caption", {}, caption),
    h("thead", {}, h("tr", {}, columns.map(([title, kind]) => h("th", { scope: "col", class: kind || null }, title)))),
    h(
      "tbody",
      {},
      rows.map((cells) =>
        h("tr", {}, cells.map((cell, at) =>
          h(at ? "td" : "th", { scope: at ? null : "row", class: columns[at][1] || null, "data-title": columns[at][0] },
            cell))),
      ),
    ),
  );
}

/** What stands where nothing is. */
export const empty = (text) => h("p", { class: "empty" }, text);
