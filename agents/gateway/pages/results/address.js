/* The selected view, stored after the # of the URL: it can be shared, the back button works, and
   browsers do not send it to a server. */

/* #q=tea&r=["tea","https://tea.example/"]&epoch=41&since=34&own=1, or #find=te */
export function read(hash = location.hash) {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  const number = (name) => (/^\d{1,16}$/.test(fields.get(name) ?? "") ? Number(fields.get(name)) : null);
  const items = [];
  for (const [name, value] of fields) {
    if (name === "q" && value) items.push({ query: value });
    if (name === "r") {
      try {
        const [query, url] = JSON.parse(value);
        if (typeof query === "string" && typeof url === "string") items.push({ query, url });
      } catch { /* Not a URL of this page: ignore the part that cannot be parsed. */ }
    }
  }
  return {
    items: items.slice(0, MOST),
    find: fields.get("find") ?? "",
    epoch: number("epoch"),
    since: number("since"),
    last: SPANS.find((span) => span === number("last")) ?? SPANS[0],
    own: fields.get("own") === "1",
  };
}

/* Numbers of epochs that charts and comparisons may cover. */
export const SPANS = [30, 90, 365];

/* The largest number of lines in one chart that remain distinguishable. */
export const MOST = 6;

export function write(view) {
  const fields = new URLSearchParams();
  for (const { query, url } of view.items ?? []) {
    fields.append(url === undefined ? "q" : "r", url === undefined ? query : JSON.stringify([query, url]));
  }
  if (view.find) fields.set("find", view.find);
  if (view.epoch !== null && view.epoch !== undefined) fields.set("epoch", view.epoch);
  if (view.since !== null && view.since !== undefined) fields.set("since", view.since);
  if (view.last && view.last !== SPANS[0]) fields.set("last", view.last);
  if (view.own) fields.set("own", "1");
  return `#${fields}`;
}
