// The search in the pages of a site: a button where the theme has its search, and a dialog with <vocable-search>, opened by it,
// by / or by Ctrl-K. The search itself is read when the dialog is first opened.

const PLACES = [  // selector, and the method that puts the button there: the author's own place, then those of themes
  ["[data-vocable-search]", "append"],
  [".md-header__source", "before"], [".md-header__inner", "append"], // Material for MkDocs
  [".search-button, .search-button__button", "replaceWith"], // PyData for Sphinx
  ["form[action$='search.html']", "replaceWith"], // Read the Docs and other themes of Sphinx
  [".wy-side-nav-search", "append"], [".navbar-nav:last-child", "before"], // Read the Docs and the theme of MkDocs, without a search
  ["body", "prepend"],
];
const root = new URL("./", import.meta.url);
const apple = /Mac|iPhone|iPad/.test(navigator.platform);

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const style = element("link", { rel: "stylesheet", href: new URL("place.css", root).href });
const keys = element("kbd", { "aria-hidden": "true" }, apple ? "⌘K" : "Ctrl K");
const button = element("button", { type: "button", class: "vocable-open", "aria-keyshortcuts": "/ Control+K", "aria-haspopup": "dialog" }, "Search", keys);
const close = element("button", { type: "button", class: "vocable-close", "aria-label": "Close" }, "×");
const search = element("vocable-search", { src: root.href });
const dialog = element("dialog", { class: "vocable-dialog", "aria-label": "Search", tabindex: "-1" }, close, search);
const isRead = () => customElements.get(search.localName) !== undefined;

async function open() {
  if (!dialog.open) dialog.showModal();
  if (!isRead()) {
    dialog.focus(); // not the button that closes it
    await import("./vocable-search.js");
  }
  search.focus();
}

/** Keep what is typed while the search is read: the query that it begins with. */
function keep(event) {
  if (isRead() || event.ctrlKey || event.metaKey || event.target !== dialog) return;
  const before = search.getAttribute("query") ?? "";
  if (event.key === "Backspace") search.setAttribute("query", before.slice(0, -1));
  else if (event.key.length === 1) search.setAttribute("query", before + event.key);
}

/** Whether a key opens the search: Ctrl-K, or / where nothing is typed. */
function opens(event) {
  if (event.altKey || event.isComposing) return false;
  if (event.ctrlKey || event.metaKey) return event.key.toLowerCase() === "k" && !event.shiftKey;
  const [target] = event.composedPath();
  const key = event.key === "/" || (event.key === "s" && document.querySelector("[data-vocable-stand-in]")); // the theme's key
  return key && !target.matches?.("input, select, textarea") && !target.isContentEditable;
}

button.addEventListener("click", open);
close.addEventListener("click", () => dialog.close());
window.addEventListener("keydown", (event) => {
  if (dialog.open || !opens(event)) return;
  event.preventDefault();
  event.stopImmediatePropagation(); // the theme has shortcuts of its own
  open();
}, true);
dialog.addEventListener("keydown", (event) => {
  event.stopPropagation(); // n and p turn pages in some themes
  keep(event);
});
dialog.addEventListener("click", (event) => {
  const link = event.composedPath().some((one) => one.href);
  if (event.target === dialog || (link && !event.ctrlKey && !event.metaKey && !event.shiftKey)) dialog.close();
});

const [selector, method] = PLACES.find(([one]) => document.querySelector(one));
document.head.append(style);
document.querySelector(selector)[method](button);
document.body.append(dialog);
