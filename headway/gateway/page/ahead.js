// Asks for what the first view shows while the code that draws it is still on its way.

const ASKED = {
  "": () => ["/v1/top", "/v1/load"],
  usage: () => ["/v1/usage"],
  runs: (id) => (id ? [`/v1/runs/${id}`, `/v1/runs/${id}/progress`] : ["/v1/runs?limit=100&mine=true", "/v1/arrays?limit=50&mine=true"]),
  arrays: (id) => (id ? [`/v1/arrays/${id}`, `/v1/arrays/${id}/curves?metric=`] : []),
};
const [, name = "", id = ""] = location.hash.split("/");
const paths = /^[0-9A-Za-z-]{0,64}$/.test(id) ? ASKED[name]?.(id) ?? [] : [];
const coming = new Map(paths.map((path) => [path, fetch(path, { headers: { Accept: "application/json" } }).catch(() => undefined)]));

// The answer to what was asked ahead, once; undefined where it has to be asked for.
export function ahead(path) {
  const answer = coming.get(path);
  coming.delete(path);
  return answer;
}
