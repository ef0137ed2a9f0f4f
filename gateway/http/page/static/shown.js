// How values look, and tables made of text alone: nothing that was received is ever read as HTML.

export function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Columns in which no row has anything are left out. On a phone a row becomes a card, so each cell knows its head.
export function fill(table, heads, rows) {
  const shown = heads.map((_, column) => column)
    .filter((column) => rows.some((row) => textOf(row[column]) !== ""));
  const numeric = heads.map((_, column) => rows.every((row) => typeof row[column] === "number"));
  const cell = (row, column) => {
    const kind = `${row[column]?.kind ?? ""} ${numeric[column] ? "number" : ""}`.trim();
    const attributes = { "data-head": heads[column], ...(kind ? { class: kind } : {}) };
    return element("td", attributes, textOf(row[column]));
  };
  const head = (column) => element("th", { scope: "col", ...(numeric[column] ? { class: "number" } : {}) }, heads[column]);
  table.replaceChildren(
    element("thead", {}, element("tr", {}, ...shown.map(head))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...shown.map((column) => cell(row, column))))),
  );
  table.hidden = rows.length === 0;
}

function textOf(value) {
  const text = typeof value === "object" && value !== null ? value.text : value;
  return typeof text === "number" ? number(text) : String(text ?? "");
}

export function number(value) {
  if (value >= 1e6) return `${(value / 1e6).toPrecision(3)} M`;
  if (value >= 1e4) return `${(value / 1e3).toPrecision(3)} k`;
  return Number.isInteger(value) ? String(value) : value.toPrecision(value < 1 ? 2 : 3);
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 1) return `${value.toPrecision(3)} s`;
  return value < 0.01 ? `${(value * 1000).toPrecision(2)} ms` : `${Math.round(value * 1000)} ms`;
}

export const share = (value) => `${value ? (value * 100).toPrecision(value > 0.0995 ? 3 : 2) : 0} %`;

export function since(unix) {
  const passed = Math.max(0, Date.now() / 1000 - unix);
  if (passed < 90) return `${Math.round(passed)} s`;
  return passed < 5400 ? `${Math.round(passed / 60)} min` : `${Math.round(passed / 3600)} h`;
}
