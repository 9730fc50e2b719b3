// Builds elements. Text is always set as text: names and logs are what users wrote.

const SVG = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

export const h = (tag, attributes, ...children) =>
  filled(document.createElement(tag), attributes, children);

export const svg = (tag, attributes, ...children) =>
  filled(document.createElementNS(SVG, tag), attributes, children);

export function table(caption, columns, rows, empty) {
  if (!rows.length) return h("p", { class: "soft" }, empty);
  const head = columns.map(([name, kind]) => h("th", { scope: "col", class: kind }, name));
  const body = rows.map((row) =>
    h("tr", {}, row.map((cell, at) => h("td", { class: columns[at][1] }, cell))));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", { "aria-label": caption }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

export const runLink = (id, name) => h("a", { href: `#/runs/${id}`, id: `to-${id}` }, name);

// What is focused stays focused when a view is drawn anew, and what is typed stays typed.
export function redraw(place, ...children) {
  const focused = document.activeElement;
  const typed = focused?.type === "search" ? [focused.value, focused.selectionStart] : null;
  const scrolled = new Map([...place.querySelectorAll("[data-keep]")].map((each) =>
    [each.dataset.keep, each.scrollTop + each.clientHeight >= each.scrollHeight - 4 ? Infinity : each.scrollTop]));
  place.replaceChildren(...children.flat().filter(Boolean));
  for (const each of place.querySelectorAll("[data-keep]")) {
    each.scrollTop = Math.min(scrolled.get(each.dataset.keep) ?? Infinity, each.scrollHeight);
  }
  if (!focused?.id || document.activeElement?.id === focused.id) return;
  const again = document.getElementById(focused.id);
  again?.focus({ preventScroll: true });
  if (again && typed) {
    [again.value] = typed;
    again.setSelectionRange(typed[1], typed[1]);
  }
}
