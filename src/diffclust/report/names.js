// What the reader calls clusters and rows: kept in the page's own storage, and saved to files that diffclust.load_names
// reads.
"use strict";
const Names = (() => {
  const { $, data: D, downloadText, csv } = Page;
  const place = `diffclust.names.${D.key}`, given = JSON.stringify(D.names);
  const listeners = [];
  let names = { clusters: { ...D.names.clusters }, rows: { ...D.names.rows } }, kept = true;

  const proper = (some) => Object.fromEntries(Object.entries(some || {}).filter(([number, name]) => /^\d+$/.test(number) && typeof name === "string" && name.trim()).map(([number, name]) => [number, name.trim().slice(0, 200)]));

  // Names that came with the page since they were kept go before those that were kept.
  try {
    const before = JSON.parse(localStorage.getItem(place) || "null");
    if (before) {
      names = { clusters: proper(before.clusters), rows: proper(before.rows) };
      if (before.given !== given) for (const kind of ["clusters", "rows"]) Object.assign(names[kind], D.names[kind]);
    }
  } catch { kept = false; } // a page in a frame has no storage

  function changed() {
    try {
      localStorage.setItem(place, JSON.stringify({ ...names, given }));
    } catch { kept = false; }
    for (const listener of listeners) listener();
  }

  function put(kind, numbers, name) {
    for (const number of numbers) {
      if (name.trim()) names[kind][number] = name.trim();
      else delete names[kind][number];
    }
    changed();
  }

  function read(text) {
    const found = JSON.parse(text);
    names = { clusters: { ...names.clusters, ...proper(found.clusters) }, rows: { ...names.rows, ...proper(found.rows) } };
    changed();
  }

  const lines = () => ["cluster", "row"].flatMap((kind) => Object.entries(names[`${kind}s`]).map(([number, name]) => [kind, number, name]));

  function tools() {
    $("names-json").addEventListener("click", () => downloadText("names.json", JSON.stringify(names, null, 1), "application/json"));
    $("names-csv").addEventListener("click", () => downloadText("names.csv", csv([["kind", "number", "name"], ...lines()]), "text/csv"));
    $("names-read").addEventListener("change", async (event) => {
      const file = event.target.files[0];
      if (!file) return;
      try {
        read(await file.text());
        $("names-said").textContent = `${file.name} was read.`;
      } catch { $("names-said").textContent = `${file.name} is not a file of names saved by this page.`; }
      event.target.value = "";
    });
  }

  return {
    tools,
    cluster: (j) => names.clusters[j] || "",
    row: (number) => names.rows[number] || "",
    called: (j) => (names.clusters[j] ? `cluster ${j}, ${names.clusters[j]}` : `cluster ${j}`),
    short: (j) => (names.clusters[j] ? `${j} ${names.clusters[j]}` : String(j)),
    rowNames: () => [...new Set(Object.values(names.rows))].sort(),
    nameCluster: (j, name) => put("clusters", [j], name),
    nameRows: (numbers, name) => put("rows", numbers, name),
    onChange: (listener) => listeners.push(listener),
    isKept: () => kept,
  };
})();
