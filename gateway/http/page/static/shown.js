// How values look, and tables made of text alone: nothing that was received is ever read as HTML.

export function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

export function fill(table, heads, rows) {
  // A column of numbers stands to the right, its head too.
  const numeric = heads.map((_, column) => rows.length > 0 && rows.every((row) => typeof row[column] === "number"));
  const cell = (name, value, column) => {
    const { text, kind } = typeof value === "object" && value !== null ? value : { text: value, kind: "" };
    const attributes = kind || numeric[column] ? { class: `${kind} ${numeric[column] ? "number" : ""}`.trim() } : {};
    return element(name, attributes, typeof text === "number" ? number(text) : String(text ?? ""));
  };
  const line = (name, values) => element("tr", {}, ...values.map((value, column) => cell(name, value, column)));
  table.replaceChildren(
    element("thead", {}, ...(heads.length ? [line("th", heads)] : [])),
    element("tbody", {}, ...rows.map((row) => line("td", row))),
  );
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
