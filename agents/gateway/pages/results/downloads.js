/* Files to take home: one epoch or all, JSON or CSV. */

import { byId } from "./elements.js";
import { ask } from "./published.js";

const TYPES = { json: "application/json", csv: "text/csv" };

/* The pieces of one file, from as many pages as there are. */
async function pages(path, form) {
  const parts = [];
  let count = 0;
  for (let next = path; next; ) {
    const answer = await ask(next, TYPES[form]);
    if (!answer) throw new Error("Nothing is published yet");
    const text = await answer.text();
    const first = parts.length === 0;
    if (form === "csv") parts.push(first ? text : text.slice(text.indexOf("\n") + 1));
    // Pages are {"estimates":[…],"next":…}: joined as text, numbers stay as they were published.
    else parts.push(first ? "[" : ",", text.slice(text.indexOf("[") + 1, text.lastIndexOf("]")));
    count += 1;
    next = answer.headers.get("link")?.match(/<([^>]+)>; rel="next"/)?.[1].replace(/^\//, "");
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
      const answer = await ask(`v1/estimates/${epoch ?? "latest"}?${query}`, TYPES[form]);
      if (!answer) throw new Error("Nothing is published yet");
      parts = [await answer.blob()];
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
