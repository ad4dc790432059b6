// What is looked at, as the query string of the address: a link shows the same, and back goes back.

export const START = { q: "", like: "", filter: "", by: "", beside: "", k: 10, top: 0, min: 0, term: "" }; // top 0: all terms

export const state = read();

function read() {
  const given = new URLSearchParams(location.search);
  const values = { ...START };
  for (const name of Object.keys(START)) {
    if (!given.has(name)) continue;
    const value = given.get(name);
    if (typeof START[name] === "string") values[name] = value;
    else if (Number(value) >= 0 && value.trim()) values[name] = Number(value);
  }
  values.k = Math.min(Math.max(Math.round(values.k), 1), 50);
  values.top = Math.round(values.top);
  return values;
}

/** Rank by this where the address does not say by what. */
export function setUsual(by) {
  START.by = by;
  state.by ||= by;
}

/** The address of what is looked at. */
function address() {
  const parts = Object.keys(START).filter((name) => state[name] !== START[name]);
  const query = new URLSearchParams(parts.map((name) => [name, state[name]]));
  return parts.length ? `?${query}` : location.pathname;
}

let going = ""; // what is being typed or dragged: one entry of the history, not one a letter

/** Change the state; changes of the same `kind` that follow each other are one step back. */
export function change(values, kind = "") {
  Object.assign(state, values);
  history[kind && kind === going ? "replaceState" : "pushState"](null, "", address());
  going = kind;
}

/** Call what shows the state whenever the reader goes back or forward. */
export function whenGone(show) {
  addEventListener("popstate", () => {
    going = "";
    Object.assign(state, read());
    show();
  });
}
