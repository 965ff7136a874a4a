"use strict";

// Everything that a model or a task wrote reaches the page as text, never as markup.

/** Make an element: attributes by name, `on…` handlers, and children that are elements or text. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else if (name === "style") Object.assign(made.style, value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f]|[\u0080-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** Show control characters and those that change the direction of text. */
function visible(text) {
  return String(text).replace(CONTROL, (char) => {
    const code = char.charCodeAt(0);
    return code < 32 ? String.fromCharCode(0x2400 + code) : code === 127 ? "␡" : `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

function number(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const isExtreme = value !== 0 && (Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3);
  const text = isExtreme ? value.toExponential(Math.max(0, digits - 1)) : String(Number(value.toPrecision(Math.max(digits, String(Math.trunc(Math.abs(value))).length))));
  return text.replace("-", "−");
}

function fixed(value, digits = 2) {
  return value === null || value === undefined ? "–" : value.toFixed(digits).replace("-", "−");
}

function signed(value, digits = 2) {
  return value === null || value === undefined ? "–" : (value > 0 ? "+" : "") + fixed(value, digits);
}

function interval(low, high, write = fixed) {
  return low === null || low === undefined || high === null || high === undefined ? "" : `[${write(low)}, ${write(high)}]`;
}

function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 59.5) return `${seconds.toFixed(seconds < 9.95 ? 1 : 0)} s`;
  const whole = Math.round(seconds), minutes = Math.round(seconds / 60);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

function plural(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

/** A table: headings, then rows of cells, which are text, numbers or elements. */
function table(caption, headings, rows, attributes = {}) {
  const cell = (value, index) => element(index === 0 ? "th" : "td", index === 0 ? { scope: "row" } : {}, value instanceof Node ? value : visible(value ?? "–"));
  return element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    element("table", attributes,
      element("caption", { class: "hidden" }, caption),
      element("thead", {}, element("tr", {}, headings.map((each) => element("th", { scope: "col" }, each)))),
      element("tbody", {}, rows.map((row) => element("tr", {}, row.map(cell))))));
}
