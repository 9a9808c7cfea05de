// Elements of the page. Text is always a text node: what the API sends is never read as markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children; `null` and `false` attributes are left out. */
export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** The same for a drawing. */
export function drawing(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

/** Sets text only where it differs, so that nothing is read out or laid out for no reason. */
export function say(node, text) {
  const words = String(text);
  if (node.textContent !== words) node.textContent = words;
}

/** Sets an attribute only where it differs; `null` takes it away. */
export function set(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

/** A part of a view with its heading, and buttons beside it. */
export function section(title, tools, ...children) {
  return element("section", { class: "card" }, element("div", { class: "head" }, element("h2", {}, title), ...tools), ...children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null));
  return node;
}
