// Runs the script of a page (argument 1) outside a browser: the part of the DOM that docs/ui.md
// uses, and an EventSource that reads a stream with fetch and does not resume. It prints the first
// row after each change of the table, the text of the open run, and each request. A line on
// standard input clicks on the first row, or on the button that it names.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

class Element {
  #text = "";
  children = [];
  constructor(name) { this.name = name; }
  get textContent() { return this.#text; }
  set textContent(text) {
    this.#text = text;
    if (this.name === "run") console.log("run " + JSON.stringify(text));
    if (this.name === "tr" && elements.runs.children[0] === this) console.log("first " + text);
  }
  replaceChildren(...rows) {
    this.children = rows;
    console.log("first " + (rows[0]?.textContent ?? "") + " of " + rows.length);
  }
}
const elements = Object.fromEntries(["runs", "older", "run", "more"].map((id) => [id, new Element(id)]));
globalThis.document = { getElementById: (id) => elements[id], createElement: (name) => new Element(name) };

const fetched = globalThis.fetch;
globalThis.fetch = (address, options) => {
  console.log("request " + address.replace(/^https?:..[^/]*/, ""));
  return fetched(address, options);
};
globalThis.EventSource = class {
  #listeners = {};
  #aborter = new AbortController();
  constructor(address) { this.#read(address); }
  addEventListener(kind, f) { this.#listeners[kind] = f; }
  close() { this.#aborter.abort(); }
  async #read(address) {
    try {
      const answer = await fetch(address, { headers: { Accept: "text/event-stream" }, signal: this.#aborter.signal });
      this.onopen?.();
      let text = "";
      for await (const part of answer.body.pipeThrough(new TextDecoderStream())) {
        const messages = (text + part).split("\n\n");
        text = messages.pop();
        for (const message of messages) {
          const fields = Object.fromEntries(message.split("\n").map((line) => line.split(/: ?(.*)/s)));
          this.#listeners[fields.event]?.({ data: fields.data });
        }
      }
    } catch (e) {
      if (!this.#aborter.signal.aborted) throw e;
    }
  }
};
createInterface({ input: process.stdin }).on("line", (line) => (elements[line] ?? elements.runs.children[0]).onclick());
await import("data:text/javascript," + encodeURIComponent(readFileSync(process.argv[2], "utf8")));
