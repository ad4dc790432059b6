// The encoder of queries, in a worker of its own.

export class Encoder {
  #worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
  #asked = []; // what answers are for, in their order

  /** Load an encoder by the settings in the manifest; `told` gets the share that is loaded. */
  static async load(base, settings, { told = () => {}, signal }) {
    const made = new Encoder();
    signal?.addEventListener("abort", () => made.close());
    await made.#ask({ base: base.href, settings }, told);
    return made;
  }

  constructor() {
    this.#worker.addEventListener("message", ({ data: { share, error, found } }) => {
      if (share !== undefined) this.#asked[0]?.told(share);
      else if (error !== undefined) this.#asked.shift().reject(new Error(error));
      else this.#asked.shift().resolve(found);
    });
    this.#worker.addEventListener("error", (event) => this.close(event.message || "a script is missing"));
  }

  /** The terms of a query by its tokens, each with its weight. */
  weights(tokens) {
    return this.#ask({ tokens });
  }

  close(reason = "stopped") {
    this.#worker.terminate();
    this.#ask = () => Promise.reject(new Error(reason));
    for (const { reject } of this.#asked.splice(0)) reject(new Error(reason));
  }

  #ask = (message, told) => new Promise((resolve, reject) => {
    this.#asked.push({ resolve, reject, told });
    this.#worker.postMessage(message);
  });
}
