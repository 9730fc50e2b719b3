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

// Where it is narrow each row is a card with the columns' names in it (page.css). The roles keep it a table there: some
// browsers take an element that is not shown as a part of a table for none.
export function table(caption, columns, rows, empty) {
  if (!rows.length) return h("p", { class: "soft" }, empty);
  const named = Math.max(columns.findIndex(([, kind]) => kind === "name"), 0); // column that says what a row is of
  const head = columns.map(([name, kind]) => h("th", { scope: "col", role: "columnheader", class: kind }, name));
  const cell = (value, at) => h(at === named ? "th" : "td", { class: columns[at][1], role: at === named ? "rowheader" : "cell",
    scope: at === named && "row", "data-label": columns[at][0].textContent ?? columns[at][0] }, value);
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", { role: "table", "aria-label": caption }, h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)),
      h("tbody", { role: "rowgroup" }, rows.map((row) => h("tr", { role: "row" }, row.map(cell))))));
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
