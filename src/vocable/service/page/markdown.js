// Markdown as text: its marks are left out. What may as well be plain text stays: snake_case, __init__, 2*3*4, *args, - lists.

const FENCE = /^ {0,3}(`{3,}|~{3,})/;
const RULE = /^ *\|? *:?-+:? *(\| *:?-+:? *)+\|? *$|^ *\| *:?-+:? *\| *$/; // below the header of a table
const INLINE = new RegExp([
  /(?<!`)(?<tick>`+)(?<code>[^`]|[^`][^]*?[^`])\k<tick>(?!`)/,
  /<!--(?<comment>)[^]*?-->/,
  /(?<![\w\]])!?\[(?<link>(?:[^[\]`]|`[^`]*`)+)\]\((?:[^()\s]|\([^()\s]*\))*(?: "[^"]*")?\)/,
  /(?<![\w*])\*\*(?=\*?[^\s*])(?<strong>(?:[^*]|\*(?!\*)|\*(?=\*\*(?!\*)))+?)(?<!\s)\*\*(?![\w*])/,
  /(?<![\w*])\*(?<stressed>[^\s*](?:[^*]*[^\s*])?)\*(?![\w*])/,
  /(?<![\w~])~~(?<struck>[^\s~](?:[^~]*[^\s~])?)~~(?![\w~])/,
].map((one) => one.source).join("|"), "dg");

/** Pieces of a text without the marks of Markdown. */
export function plain(parts) {
  const text = parts.map((part) => part.text).join("");
  const units = text.split("");
  for (const [from, to, instead] of marksOf(text)) {
    units.fill("", from, to);
    units[from] = instead;
  }
  let at = 0;
  return parts.flatMap((part) => {
    const kept = units.slice(at, at += part.text.length).join("");
    return kept ? [{ ...part, text: kept }] : [];
  });
}

/** Where marks begin and end, and what stands there instead. */
function marksOf(text) {
  const marks = [];
  let at = 0, fence = "", lines = []; // of a paragraph, with their places
  const end = () => {
    if (lines.length) paragraph(text, lines, marks);
    lines = [];
  };
  for (const line of text.split("\n")) {
    const [, found] = FENCE.exec(line) ?? [];
    if (found && (!fence || (found.startsWith(fence) && line.trim() === found))) {
      end();
      marks.push([at, Math.min(at + line.length + 1, text.length), ""]);
      fence = fence ? "" : found;
    } else if (!fence && line.trim()) lines.push([at, line]);
    else end();
    at += line.length + 1;
  }
  end();
  return marks;
}

function paragraph(text, lines, marks) {
  const table = lines.some(([, line]) => RULE.test(line));
  for (const [number, [at, line]] of lines.entries()) {
    const [before] = /^ {0,3}#{1,6} +(?=\S)/.exec(number ? "" : line) ?? /^ {0,3}(> ?)+/.exec(line) ?? [""];
    if (before) marks.push([at, at + before.length, ""]);
    if (table && RULE.test(line)) marks.push([at, at + line.length, ""]);
    else if (table) {
      for (const edge of line.matchAll(/^ *\| *| *\| *$|\|/g)) {
        marks.push([at + edge.index, at + edge.index + edge[0].length, edge[0] === "|" ? "·" : ""]);
      }
    }
  }
  const [last, line] = lines.at(-1);
  inline(text.slice(lines[0][0], last + line.length), lines[0][0], marks);
}

function inline(text, at, marks) {
  for (const found of text.matchAll(INLINE)) {
    const name = Object.keys(found.groups).find((one) => one !== "tick" && found.groups[one] !== undefined);
    const [from, to] = name === "comment" ? [found.index, found.index] : found.indices.groups[name];
    marks.push([at + found.index, at + from, ""], [at + to, at + found.index + found[0].length, ""]);
    if (name !== "code") inline(text.slice(from, to), at + from, marks);
  }
}
