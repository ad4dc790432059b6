// SentencePiece's Unigram, as the tokenizers library has it: the pieces of a word whose scores have the largest sum.

import { normalized, partsOf, SPACE } from "./steps.js";

const SPACES = new RegExp(`[${SPACE}]+`);
const WHOLE = 2; // flag of a piece that is all of its word

/** The tokens of a text; `pieces(text)` resolves to a Map with every piece that a text begins with, and its numbers. */
export async function tokensOf(text, tokenizer, { pieces, content }) {
  const parts = await partsOf(text, tokenizer.added_tokens, (part) => normalized(part, tokenizer.normalizer, content));
  return (await Promise.all(parts.map(async ({ token, text: part }) => {
    if (token !== undefined) return [token];
    const words = tokenizer.pre_tokenizer.reduce((some, step) => some.flatMap((one) => cut(one, step)), [part]);
    return (await Promise.all(words.map((word) => piecesOf(word, tokenizer.model, pieces)))).flat();
  }))).flat();
}

/** The text of a token, without the mark of a space before it. */
export const textOf = (token) => token.replaceAll("▁", " ").trim() || token;

/** The words of a text by a step of the pre-tokenizer: between spaces, or each with a mark in place of its space. */
function cut(text, { type, replacement: mark, prepend_scheme: prepend, split }) {
  if (type === "WhitespaceSplit") return text.split(SPACES).filter(Boolean);
  let marked = text.replaceAll(" ", mark);
  if (prepend === "always" && !marked.startsWith(mark)) marked = mark + marked;
  return split ? marked.split(new RegExp(`(?=${mark})`, "u")) : [marked];
}

/** The best pieces of a word. Neighbours that are no pieces are one unknown token. */
async function piecesOf(word, model, pieces) {
  const first = await pieces(word);
  if (first.get(word)?.[0] & WHOLE) return [word];
  const letters = [...word], until = (start) => letters.slice(start, start + model.longest);
  const known = [first, ...await Promise.all(letters.slice(1).map((_, i) => pieces(until(i + 1).join(""))))];
  const best = [{ score: 0 }]; // ends of pieces: the score so far, and the start of the last piece
  for (let start = 0; start < letters.length; start++) {
    const reach = (length, score, unknown) => {
      const before = best[start + length];
      if (!before || score > before.score) best[start + length] = { score, start, unknown };
    };
    let text = "";
    for (const [i, letter] of until(start).entries()) {
      const numbers = known[start].get(text += letter);
      if (numbers) reach(i + 1, new DataView(numbers.buffer).getFloat64(1, true) + best[start].score, false);
    }
    if (!known[start].has(letters[start])) reach(1, model.unknown_score + best[start].score, true);
  }
  const found = [];
  for (let end = letters.length; end > 0;) {
    let { start, unknown } = best[end];
    while (unknown && start > 0 && best[start].unknown) ({ start } = best[start]);
    const text = letters.slice(start, end).join("");
    found.push(known[start].has(text) ? text : model.unk_token);
    end = start;
  }
  return found.reverse();
}
