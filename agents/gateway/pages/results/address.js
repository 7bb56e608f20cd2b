/* What is looked at, kept behind the # of the address: it can be passed on, the back button works,
   and browsers send nothing of it to a server. */

/* #q=tea&r=["tea","https://tea.example/"]&epoch=41&since=34&own=1, or #find=te */
export function read(hash = location.hash) {
  const said = new URLSearchParams(hash.replace(/^#/, ""));
  const number = (name) => (/^\d{1,16}$/.test(said.get(name) ?? "") ? Number(said.get(name)) : null);
  const items = [];
  for (const [name, value] of said) {
    if (name === "q" && value) items.push({ query: value });
    if (name === "r") {
      try {
        const [query, url] = JSON.parse(value);
        if (typeof query === "string" && typeof url === "string") items.push({ query, url });
      } catch { /* Somebody else's address: what cannot be read is not shown. */ }
    }
  }
  return {
    items: items.slice(0, MOST),
    find: said.get("find") ?? "",
    epoch: number("epoch"),
    since: number("since"),
    last: SPANS.find((span) => span === number("last")) ?? SPANS[0],
    own: said.get("own") === "1",
  };
}

/* How many epochs charts and comparisons go back. */
export const SPANS = [30, 90, 365];

/* Lines in one chart that can still be told apart. */
export const MOST = 6;

export function write(view) {
  const said = new URLSearchParams();
  for (const { query, url } of view.items ?? []) {
    said.append(url === undefined ? "q" : "r", url === undefined ? query : JSON.stringify([query, url]));
  }
  if (view.find) said.set("find", view.find);
  if (view.epoch !== null && view.epoch !== undefined) said.set("epoch", view.epoch);
  if (view.since !== null && view.since !== undefined) said.set("since", view.since);
  if (view.last && view.last !== SPANS[0]) said.set("last", view.last);
  if (view.own) said.set("own", "1");
  return `#${said}`;
}
