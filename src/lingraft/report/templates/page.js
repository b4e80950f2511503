"use strict";
(() => {
  const PROOFS = {
    checked: "its certificate was checked by the independent checker",
    written: "its certificate was written, and not checked yet",
    rejected: "the independent checker rejected its certificate",
    missing: "there is no certificate of it",
  };
  const SIGNS = { verified: "✓", falsified: "✗", unknown: "?", misclassified: "!" };
  const find = (id) => document.getElementById(id);

  /** An element with properties and children; strings become text, never markup. */
  function make(tag, properties = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name in element) element[name] = value;
      else element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }

  // light and dark
  const theme = find("theme");
  const wantsDark = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme || (wantsDark.matches ? "dark" : "light")) === "dark";
  const showTheme = () => {
    theme.textContent = isDark() ? "Light mode" : "Dark mode";
    theme.setAttribute("aria-pressed", String(isDark()));
  };
  theme.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    showTheme();
  });
  wantsDark.addEventListener("change", showTheme);
  showTheme();

  // a link to what is folded unfolds it
  const unfold = (hash) => {
    const around = hash.length > 1 && find(hash.slice(1))?.closest("details");
    if (around) around.open = true;
  };
  for (const link of document.querySelectorAll("a[href^='#']")) link.addEventListener("click", () => unfold(link.hash));
  unfold(location.hash);

  // on paper nothing can be unfolded
  let folded = [];
  window.addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const each of folded) each.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const each of folded) each.open = false;
  });

  // downloads: made here, of what is on the page
  function save(name, type, text) {
    const address = URL.createObjectURL(new Blob([text], { type }));
    make("a", { href: address, download: name }).click();
    URL.revokeObjectURL(address);
  }
  const COLORS = JSON.parse(find("colors").textContent);
  for (const figure of document.querySelectorAll("figure:has(> svg)")) {
    const caption = figure.querySelector("figcaption");
    const title = caption.textContent.trim();
    const button = make("button", { type: "button", className: "download", "aria-label": `Download as SVG: ${title}` }, "SVG");
    button.addEventListener("click", () => {
      const picture = figure.querySelector("svg").cloneNode(true);
      const [, , width, height] = picture.getAttribute("viewBox").split(" ");
      picture.setAttribute("width", `${width}pt`);
      picture.setAttribute("height", `${height}pt`);
      picture.setAttribute("style", "background: white");
      // a file has no style sheet: the colours on light paper
      const text = new XMLSerializer().serializeToString(picture).replace(/var\(--(\w+)\)/g, (all, name) => (COLORS[name] || [all])[0]);
      save(`${figure.closest("section").id}-${title}.svg`.replace(/[^\p{L}\p{N}.]+/gu, "-"), "image/svg+xml", text);
    });
    caption.append(button);
  }

  // the verdict browser
  const data = JSON.parse(find("data").textContent);
  if (!data.runs.length) return;
  const controls = { run: find("run"), label: find("label"), proof: find("proof"), order: find("order") };
  const boxes = [...document.querySelectorAll("input[name=verdict]")];
  const grid = find("images");
  const dialog = find("details");
  let shown = [];
  let place = 0;

  const current = () => data.runs[Number(controls.run.value)];
  const setOf = (run) => data.sets[run.data];
  const pictureOf = (run, item) => setOf(run).images[item.index];
  const named = (run, label) => {
    const name = setOf(run).classes[label];
    return name === undefined || name === String(label) ? String(label) : `${name} (${label})`;
  };
  const hasProof = (item, wanted) => wanted === "" || (wanted === "none" ? !item.proof || item.proof === "missing" : item.proof === wanted);
  const lowest = (item) => {
    const bounds = Object.values(item.alpha || item.crown || {}).filter((bound) => bound !== null);
    return bounds.length ? Math.min(...bounds) : Infinity;
  };
  const ORDERS = {
    index: (a, b) => a.index - b.index,
    seconds: (a, b) => b.seconds - a.seconds,
    domains: (a, b) => (b.domains || 0) - (a.domains || 0) || a.index - b.index,
    bound: (a, b) => lowest(a) - lowest(b) || a.index - b.index,
  };

  data.runs.forEach((run, i) => controls.run.append(make("option", { value: String(i) }, run.title)));
  // the run with most proven images has most to show
  const proven = (run) => run.images.filter((item) => item.verdict === "verified").length / run.images.length;
  controls.run.value = String(data.runs.reduce((best, run, i) => (proven(run) > proven(data.runs[best]) ? i : best), 0));

  function fillLabels() {
    const run = current();
    const before = controls.label.value;
    const labels = [...new Set(run.images.map((item) => item.label))].sort((a, b) => a - b);
    controls.label.replaceChildren(make("option", { value: "" }, "all"));
    for (const label of labels) controls.label.append(make("option", { value: String(label) }, named(run, label)));
    controls.label.value = labels.includes(Number(before)) && before !== "" ? before : "";
  }

  function thumbnail(run, item, i) {
    const picture = pictureOf(run, item);
    const about = `image ${item.index}, label ${named(run, item.label)}: ${item.verdict}`;
    const inside = picture ? make("img", { src: picture, alt: "" }) : String(item.index);
    const sign = make("span", { className: `sign badge ${item.verdict}`, "aria-hidden": "true" }, SIGNS[item.verdict]);
    const button = make("button", { type: "button", className: `thumb ${item.verdict}`, title: about, tabIndex: i ? -1 : 0 }, inside, sign);
    button.setAttribute("aria-label", about);
    button.dataset.place = String(i);
    return make("li", {}, button);
  }

  function showImages() {
    const run = current();
    const wanted = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
    const chosen = run.images.filter(
      (item) => (controls.label.value === "" || String(item.label) === controls.label.value) && hasProof(item, controls.proof.value),
    );
    for (const count of document.querySelectorAll("[data-count]")) {
      count.textContent = String(chosen.filter((item) => item.verdict === count.dataset.count).length);
    }
    shown = chosen.filter((item) => wanted.has(item.verdict)).sort(ORDERS[controls.order.value]);
    grid.replaceChildren(...shown.map((item, i) => thumbnail(run, item, i)));
    const why = setOf(run).why ? ` There are no pictures: ${setOf(run).why}` : "";
    find("shown").textContent = `${shown.length} of ${run.images.length} images, ${run.data}, ε = ${run.eps}, at most ${run.limit} s each.${why}`;
  }

  function view(title, source, alt, note) {
    return make("figure", {}, source ? make("img", { src: source, alt }) : null, make("figcaption", {}, make("b", {}, title), note ? ` ${note}` : ""));
  }

  function views(run, item) {
    const picture = pictureOf(run, item);
    const taken = (label) => (label === undefined ? "" : `taken for ${named(run, label)}`);
    const all = [];
    if (picture) all.push(view("image", picture, `image ${item.index}`, taken(item.taken)));
    if (item.witness) all.push(view("witness", item.witness, `witness against image ${item.index}`, taken(item.witness_taken)));
    if (item.difference) {
      const times = Number(run.magnified.toPrecision(2));
      all.push(view("difference", item.difference, "difference of the two, magnified", `× ${times}; grey is no change, dark and bright are − ε and + ε, colour by colour`));
    }
    return all.length ? make("div", { className: "views" }, ...all) : null;
  }

  function facts(run, item) {
    const unstable = Object.values(item.unstable || {}).reduce((sum, count) => sum + count, 0);
    const rows = [
      ["decided by", item.verdict === "unknown" ? `nothing; reached ${item.stage}` : item.stage],
      ["reason", item.reason],
      ["proof", item.proof ? `${item.proof}: ${PROOFS[item.proof]}` : null],
      ["time", `${item.seconds.toFixed(item.seconds < 1 ? 3 : 1)} s of ${run.limit} s`],
      ["domains", item.domains ? item.domains.toLocaleString("en") : "none: no branching"],
      ["unstable", item.unstable ? `${unstable.toLocaleString("en")} of ${item.neurons.toLocaleString("en")} neurons` : null],
      ...Object.entries(item.unstable || {}).map(([site, count]) => [`· site ${site}`, count.toLocaleString("en")]),
      ["error", item.error],
    ];
    const filled = rows.filter(([, value]) => value !== undefined && value !== null);
    return make("dl", { className: "facts" }, ...filled.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
  }

  function boundsTable(run, item) {
    if (!item.crown) return make("p", { className: "faint" }, "No bounds: it was decided before any were computed.");
    const best = item.alpha || item.crown;
    const numbers = Object.values(best).filter((bound) => bound !== null);
    const low = Math.min(0, ...numbers);
    const high = Math.max(0, ...numbers);
    const width = high - low || 1;
    const percent = (value) => `${((100 * (value - low)) / width).toFixed(2)}%`;
    const print = (bound) => (bound === null || bound === undefined ? "–" : bound.toPrecision(3));
    const bar = (bound) => {
      if (bound === null) return null;
      const part = make("i", { className: bound > 0 ? "above" : "below" });
      part.style.left = percent(Math.min(0, bound));
      part.style.width = `${((100 * Math.abs(bound)) / width).toFixed(2)}%`;
      const zero = make("b");
      zero.style.left = `min(${percent(0)}, 100% - 1px)`;
      return make("span", { className: "line", "aria-hidden": "true" }, part, zero);
    };
    const head = ["against", "CROWN", "α-CROWN", ""].map((text, i) => make("th", { scope: "col", className: i && i < 3 ? "number" : "" }, text));
    const body = Object.keys(item.crown).map((label) =>
      make(
        "tr",
        {},
        make("th", { scope: "row" }, named(run, Number(label))),
        make("td", { className: "number" }, print(item.crown[label])),
        make("td", { className: "number" }, item.alpha ? print(item.alpha[label]) : "–"),
        make("td", {}, bar(best[label])),
      ),
    );
    return make(
      "div",
      {},
      make("table", { className: "bounds" }, make("caption", { className: "faint" }, "Lower bounds of the margin at the root; above 0 is proven"), make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body)),
    );
  }

  function otherRuns(run, item) {
    const rows = [];
    data.runs.forEach((other, i) => {
      const same = other !== run && other.data === run.data && other.images.find((each) => each.index === item.index);
      if (!same) return;
      const alone = data.runs.filter((each) => each.name === other.name && each.data === other.data).length === 1;
      const button = make("button", { type: "button" }, alone && other.eps === run.eps ? other.name : `${other.name}, ε = ${other.eps}`);
      button.addEventListener("click", () => {
        controls.run.value = String(i);
        boxes.forEach((box) => (box.checked = true));
        controls.label.value = "";
        controls.proof.value = "";
        fillLabels();
        showImages();
        open(shown.findIndex((each) => each.index === item.index));
        find("details-title").focus();
      });
      rows.push(make("tr", {}, make("th", { scope: "row" }, button), make("td", {}, badge(same.verdict)), make("td", { className: "number" }, `${same.seconds.toFixed(2)} s`)));
    });
    if (!rows.length) return null;
    return make("div", {}, make("h3", {}, "The same image in other runs"), make("table", { className: "others" }, make("tbody", {}, ...rows)));
  }

  function badge(verdict) {
    return make("span", { className: `badge ${verdict}` }, `${SIGNS[verdict]} ${verdict}`);
  }

  function open(i) {
    if (i < 0 || i >= shown.length) return;
    place = i;
    const run = current();
    const item = shown[i];
    find("details-title").replaceChildren(`Image ${item.index}, label ${named(run, item.label)} `, badge(item.verdict));
    find("details-body").replaceChildren(
      ...[views(run, item), make("div", { className: "details-columns" }, make("div", {}, facts(run, item)), boundsTable(run, item)), otherRuns(run, item)].filter(Boolean),
    );
    find("place").textContent = `${run.name}: ${i + 1} of ${shown.length}`;
    find("previous").disabled = i === 0;
    find("next").disabled = i === shown.length - 1;
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
  }

  const thumbs = () => [...grid.querySelectorAll("button")];

  function focusThumb(i) {
    const all = thumbs();
    if (i < 0 || i >= all.length) return;
    for (const each of all) each.tabIndex = -1;
    all[i].tabIndex = 0;
    all[i].focus();
  }

  grid.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) open(Number(button.dataset.place));
  });
  grid.addEventListener("keydown", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const i = Number(button.dataset.place);
    const columns = getComputedStyle(grid).gridTemplateColumns.split(" ").length;
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -i, End: shown.length - 1 - i };
    if (event.key in steps) {
      event.preventDefault();
      focusThumb(i + steps[event.key]);
    }
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowRight") open(place + 1);
    if (event.key === "ArrowLeft") open(place - 1);
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  dialog.addEventListener("close", () => focusThumb(place));
  find("close").addEventListener("click", () => dialog.close());
  find("save-verdicts").hidden = false;
  find("save-verdicts").addEventListener("click", () => {
    const ofRun = ["name", "data", "eps", "limit"];
    const ofImage = ["index", "label", "taken", "verdict", "reason", "stage", "seconds", "domains", "neurons", "proof"];
    const quoted = (value = "") => (/[",\n]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : value);
    const lines = data.runs.flatMap((run) => run.images.map((item) => [...ofRun.map((name) => run[name]), ...ofImage.map((name) => item[name])]));
    save("lingraft-verdicts.csv", "text/csv", [["run", ...ofRun.slice(1), ...ofImage], ...lines].map((line) => `${line.map(quoted).join(",")}\n`).join(""));
  });
  find("previous").addEventListener("click", () => open(place - 1));
  find("next").addEventListener("click", () => open(place + 1));
  find("controls").addEventListener("submit", (event) => event.preventDefault());
  find("controls").addEventListener("change", () => {
    fillLabels();
    showImages();
  });
  fillLabels();
  showImages();
})();
