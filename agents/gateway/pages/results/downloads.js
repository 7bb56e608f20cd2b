/* Save one epoch or all as a file, JSON or CSV. */

import { byId } from "./elements.js";
import { ask } from "./published.js";

const TYPES = { json: "application/json", csv: "text/csv" };

/* Fetch all pages, and return the pieces of one file. */
async function pages(path, form) {
  const parts = [];
  let count = 0;
  for (let next = path; next; ) {
    const response = await ask(next, TYPES[form]);
    if (!response) throw new Error("Nothing is published yet");
    const text = await response.text();
    const first = parts.length === 0;
    if (form === "csv") parts.push(first ? text : text.slice(text.indexOf("\n") + 1));
    // Pages are {"estimates":[…],"next":…}: joined as text, so that numbers stay as published.
    else parts.push(first ? "[" : ",", text.slice(text.indexOf("[") + 1, text.lastIndexOf("]")));
    count += 1;
    next = response.headers.get("link")?.match(/<([^>]+)>; rel="next"/)?.[1].replace(/^\//, "");
  }
  if (form === "json") parts.push("]");
  return { parts, count };
}

export async function save(which, form, table, epoch, failed) {
  const query = form === "csv" ? `format=csv&table=${table}` : "format=json";
  const name = `${which === "all" ? "all-epochs" : `epoch-${epoch}`}${form === "csv" ? `-${table}` : ""}.${form}`;
  let parts;
  try {
    if (which === "all") ({ parts } = await pages(`v1/estimates?limit=100&${query}`, form));
    else {
      const response = await ask(`v1/estimates/${epoch ?? "latest"}?${query}`, TYPES[form]);
      if (!response) throw new Error("Nothing is published yet");
      parts = [await response.blob()];
    }
  } catch (error) {
    failed(`Nothing was saved: ${error.message || error}.`);
    byId("notice").scrollIntoView({ block: "center" });
    return;
  }
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(parts, { type: TYPES[form] }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
