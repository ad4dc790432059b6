// The steps before a tokenizer's model, as the tokenizers library has them: added tokens, and normalizers.

import { Cursor } from "./bytes.js";

export const SPACE = "\\t-\\r \\u0085\\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"; // of a class in a regular expression
const BEFORE = new RegExp(`[${SPACE}]*$`), AFTER = new RegExp(`^[${SPACE}]*`);
const SHORT = 6; // bytes of a cluster that is replaced as one
const encoder = new TextEncoder();
const maps = new Map(); // of characters, by file

/** A text with each of its characters changed by a function of the character and its code point. */
export function each(text, change) {
  let found = "";
  for (const one of text) found += change(one, one.codePointAt(0));
  return found;
}

/** The parts of a text: added tokens as {token}, and what `normalize` makes of the texts between them as {text}. */
export async function partsOf(text, added, normalize) {
  const spelled = new Map(), found = [];
  for (const one of added) if (one.normalized) spelled.set(await normalize(one.content), one);
  for (const part of cutAt(text, new Map(added.filter((one) => !one.normalized).map((one) => [one.content, one])))) {
    if (part.token === undefined) found.push(...cutAt(await normalize(part.text), spelled));
    else found.push(part);
  }
  return found;
}

/** The parts of a text between and at tokens; the first of them wins, and of those the longest. */
function cutAt(text, tokens) {
  const found = [], spelled = [...tokens.keys()].filter(Boolean).sort((one, other) => other.length - one.length);
  let end = 0;
  if (spelled.length) {
    const anywhere = new RegExp(spelled.map((one) => one.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&")).join("|"), "g");
    for (const { 0: matched, index } of text.matchAll(anywhere)) {
      const { content, lstrip, rstrip } = tokens.get(matched);
      let start = index, after = index + matched.length;
      if (lstrip) start = Math.max(end, index - text.slice(0, index).match(BEFORE)[0].length);
      if (rstrip) after += text.slice(after).match(AFTER)[0].length;
      if (start > end) found.push({ text: text.slice(end, start) });
      found.push({ token: content });
      end = after;
    }
  }
  if (end < text.length) found.push({ text: text.slice(end) });
  return found;
}

const STEPS = {
  NFC: (text) => text.normalize("NFC"),
  Lowercase: (text) => each(text, (one) => one.toLowerCase()),
  Strip: (text, { strip_left: left, strip_right: right }) =>
    text.replace(left ? AFTER : /^/, "").replace(right ? BEFORE : /$/, ""),
  Prepend: (text, { prepend }) => text && prepend + text,
  Replace: (text, { pattern, content }) =>
    text.replaceAll("Regex" in pattern ? new RegExp(pattern.Regex, "gu") : pattern.String, () => content),
  Precompiled: charsReplaced,
};

/** A text after the steps of a normalizer; `content(name)` resolves to the content of a file. */
export async function normalized(text, steps, content) {
  let found = text;
  for (const step of steps) found = await STEPS[step.type](found, step, content);
  return found;
}

/**
 * A text with characters replaced as a file says, the characters and what replaces them ("\0": their form in NFKC). Of a
 * short cluster the first characters that have a replacement decide, and the others are lost, as in the library.
 */
async function charsReplaced(text, { file, plain }, content) {
  if (plain && /^[ -~]*$/.test(text)) return text;
  if (!maps.has(file)) {
    const cursor = new Cursor(await content(file)), keys = cursor.texts(), values = cursor.texts();
    maps.set(file, new Map(keys.map((key, i) => [key, values[i] === "\0" ? key.normalize("NFKC") : values[i]])));
  }
  const replaced = maps.get(file);
  let found = "";
  for (const { segment } of new Intl.Segmenter("en").segment(text)) {
    const letters = [...segment], beginnings = letters.map((_, i) => letters.slice(0, i + 1).join(""));
    const first = encoder.encode(segment).length < SHORT ? beginnings.find((one) => replaced.has(one)) : undefined;
    found += first === undefined ? each(segment, (one) => replaced.get(one) ?? one) : replaced.get(first);
  }
  return found;
}
