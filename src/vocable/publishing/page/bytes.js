// Bytes of the collection, as vocable/publishing/files.py writes them.

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const CRC = Uint32Array.from({ length: 256 }, (_, byte) => {
  for (let bit = 0; bit < 8; bit++) byte = byte & 1 ? 0xedb88320 ^ (byte >>> 1) : byte >>> 1;
  return byte;
});

/** What is wrong with the collection or the network, in words for the reader. */
export class Trouble extends Error {}

/** A file that is no longer there: the collection was published anew. */
export class Gone extends Trouble {}

/** The encoder cannot read a query: it can be looked up. */
export class Unread extends Trouble {}

/** The name of a file with this content: its checksum and its size. */
export function nameOf(content) {
  let crc = -1;
  for (const byte of content) crc = CRC[(crc ^ byte) & 255] ^ (crc >>> 8);
  return `${(~crc >>> 0).toString(16).padStart(8, "0")}-${content.length.toString(16)}`;
}

export async function inflated(content) {
  const stream = new Blob([content]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** A file of the data below an address, checked; one that is damaged in a cache is fetched again. */
export async function contentOf(base, name, told) {
  const address = new URL(`data/${name}.bin`, base);
  let found = await fetched(address, "default", told);
  if (nameOf(found) !== name) found = await fetched(address, "reload");
  if (nameOf(found) !== name) throw new Trouble("A file of the search is damaged.");
  return inflated(found);
}

/** The bytes at an address; `told` gets the size of each part that came. */
export async function fetched(address, cache, told = () => {}) {
  try {
    const response = await fetch(address, { cache, credentials: "same-origin" });
    if (response.status === 404) throw new Gone("A file of the search is missing: reload the page.");
    if (!response.ok) throw new Trouble(`The search cannot be read (status ${response.status}).`);
    const counting = new TransformStream({ transform(part, next) { told(part.length); next.enqueue(part); } });
    return new Uint8Array(await new Response(response.body.pipeThrough(counting)).arrayBuffer());
  } catch (error) {
    throw error instanceof Trouble ? error : new Trouble("The search cannot be read: no network?");
  }
}

/** Whether a text comes after another one, by code points, as Python sorts. */
export function after(one, other) {
  const length = Math.min(one.length, other.length);
  for (let i = 0; i < length; i++) {
    const a = one.charCodeAt(i), b = other.charCodeAt(i);
    if (a !== b) return placed(a) > placed(b);
  }
  return one.length > other.length;
}

const placed = (unit) => (unit < 0xd800 ? unit : unit < 0xe000 ? unit + 0x2000 : unit - 0x800); // surrogates are last

export class Cursor {
  constructor(content) {
    this.content = content;
    this.place = 0;
    this.view = new DataView(content.buffer, content.byteOffset, content.byteLength);
  }

  take(size) {
    if (this.place + size > this.content.length) throw new Trouble("A file of the search is cut.");
    return this.content.subarray(this.place, this.place += size);
  }

  number() {
    let value = 0, factor = 1, byte;
    do {
      byte = this.content[this.place++];
      if (byte === undefined) throw new Trouble("A file of the search is cut.");
      value += (byte & 127) * factor;
      factor *= 128;
    } while (byte > 127);
    return value;
  }

  numbers(count) {
    return Array.from({ length: count }, () => this.number());
  }

  float() {
    this.take(4);
    return this.view.getFloat32(this.place - 4, true);
  }

  checksum() {
    return [...this.take(4)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  texts() {
    let before = new Uint8Array();
    return Array.from({ length: this.number() }, () => {
      const shared = this.number(), more = this.take(this.number()), text = new Uint8Array(shared + more.length);
      text.set(before.subarray(0, shared));
      text.set(more, shared);
      before = text;
      return decoder.decode(text);
    });
  }

  /** A map of texts that follow each other in pairs. */
  pairs() {
    const texts = this.texts();
    return new Map(Array.from({ length: texts.length / 2 }, (_, i) => texts.slice(2 * i, 2 * i + 2)));
  }

  /** Texts, and the bytes of each, which are the rest: all first ones, all second ones, and so on. */
  pieces() {
    const texts = this.texts(), numbers = this.content.subarray(this.place), length = numbers.length / texts.length;
    if (!Number.isInteger(length)) throw new Trouble("A file of the search is cut.");
    return new Map(texts.map((text, i) => [text, Uint8Array.from({ length }, (_, place) => numbers[place * texts.length + i])]));
  }

  /** The names of files, and the first key of each. */
  table() {
    const keys = this.texts(), sizes = this.numbers(this.number());
    return { keys, names: sizes.map((size) => `${this.checksum()}-${size.toString(16)}`) };
  }
}

/** The name of the file whose range has a key. */
export function nameFor(table, key) {
  let low = 0, high = table.keys.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (after(table.keys[middle], key)) high = middle;
    else low = middle + 1;
  }
  return table.names[low - 1];
}
