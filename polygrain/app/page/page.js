// The page's state is its query: a row, or an uploaded file, and a box of it. Every request carries it whole.
"use strict";

const $ = (id) => document.getElementById(id);
const state = { about: null, row: null, file: null, box: null, task: null, text: "", place: 0, alike: false, above: null, start: 0, asking: 0, picked: new Map() };
const BROWSED = 60, MOST_CHIPS = 7, LEAST_DRAG = 6, TALLEST = 1.25;

const counted = (number, one) => `${number.toLocaleString("en")} ${one}${number === 1 ? "" : "s"}`;

// Names are text, whatever they hold: nothing here is ever read as HTML.
function make(kind, attributes = {}, ...inside) {
  const element = Object.assign(document.createElement(kind), attributes);
  element.append(...inside);
  return element;
}

async function ask(path, words, body) {
  const query = new URLSearchParams(Object.entries(words).filter(([, value]) => value !== null));
  const reply = await fetch(`${path}?${query}`, body === undefined ? {} : { method: "POST", body });
  if (reply.ok) return reply;
  const said = await reply.json().catch(() => ({ error: `the server answers ${reply.status}` }));
  throw new Error(said.error);
}

const asked = () => ({ row: state.row, box: state.box && state.box.join(",") });
const filters = () => ({ task: state.task, text: state.text });
const body = () => state.file || "";

function say(text, wrong = false) {
  $("status").textContent = text;
  $("status").classList.toggle("wrong", wrong);
}

// Answers of an older question come too late and are dropped.
async function answering(work) {
  const mine = ++state.asking, isLast = () => mine === state.asking;
  document.body.classList.add("busy");
  try {
    await work(isLast);
  } catch (error) {
    if (!isLast()) return;
    $("sides").replaceChildren();
    say(error instanceof TypeError ? "The server does not answer: is `polygrain search` still running?" : error.message, true);
  } finally {
    if (isLast()) document.body.classList.remove("busy");
  }
}

function tile(hit, only, alike, rank) {
  const parts = hit.path.split("/"), file = parts.pop(), caption = parts.reverse().join(" · ") || file;
  const picture = make("img", { src: `image/${hit.row}`, alt: "", loading: "lazy", draggable: true });
  const text = make("span", { textContent: caption });
  if (rank) text.prepend(make("b", { className: "rank", textContent: rank }), " ");
  const button = make("button", { className: only ? "tile only" : "tile", title: hit.path }, picture, text);
  button.dataset.row = hit.row;
  if (alike) button.append(make("span", { className: "alike", textContent: "✓", title: "from the query's folder" }));
  button.addEventListener("click", () => go(hit.row));
  return button;
}

// `ranked`: nearest first; `others`: the rows of the side before it; `folder`: the query's, which has `mates` more.
function side(name, what, hits, ranked = false, others = null, folder = null, mates = 0) {
  const isOnly = (hit) => others !== null && !others.has(hit.row), isAlike = (hit) => hit.folder === folder;
  const [only, alike] = [isOnly, isAlike].map((test) => hits.filter(test).length);
  const title = make("h3", {}, name, make("span", { className: ranked ? "detail" : "", textContent: what, title: what }));
  const said = mates ? [mates < hits.length ? `✓ ${alike} of ${counted(mates, "other")} of its folder` : `✓ ${alike} of ${hits.length} from its folder`] : [];
  title.append(make("em", {}, ...said, ...(only ? [said.length ? " · " : "", make("i"), ` ${only} only here`] : [])));
  const tiles = make("div", { className: "tiles" }, ...hits.map((hit, i) => tile(hit, isOnly(hit), isAlike(hit), ranked && i + 1)));
  return make("section", { className: "side" }, title, tiles);
}

function browse() {
  return answering(async (isLast) => {
    const words = { ...filters(), start: state.start, count: BROWSED };
    const found = await (await ask("sample", words)).json();
    if (!isLast()) return;
    $("sides").replaceChildren(side("Images", "Click one to search for it.", found.rows));
    $("more").hidden = found.of <= found.rows.length;
    say(found.of ? `${found.rows.length} of ${counted(found.of, "image")}` : "No image has such a name.");
  });
}

// A picture that can be ticked, with the one that it is compared with.
function held({ cosine }, hit, other) {
  const tick = make("input", { type: "checkbox", className: "pick", checked: state.picked.has(hit.row), title: "select this image" });
  const holder = make("span", { className: tick.checked ? "held picked" : "held" }, tile(hit), tick);
  tick.addEventListener("change", () => pick(holder, tick.checked));
  return Object.assign(holder, { picture: [hit, other, cosine] });
}

function pick(holder, on) {
  const [hit, other, cosine] = holder.picture;
  if (on) state.picked.set(hit.row, [hit.path, other.path, cosine.toFixed(4)]); else state.picked.delete(hit.row);
  for (const same of document.querySelectorAll(".held")) {
    if (same.picture[0].row !== hit.row) continue;
    same.classList.toggle("picked", on);
    same.querySelector("input").checked = on;
  }
  offer();
}

// The selection as a file; it lives in the page alone.
function offer() {
  const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const lines = [["path", "other", "cosine"], ...state.picked.values()].map((row) => row.map(quoted).join(","));
  $("save").href = `data:text/csv;charset=utf-8,${encodeURIComponent(lines.join("\n") + "\n")}`;
  $("save").textContent = `Save ${state.picked.size.toLocaleString("en")} as CSV`;
  $("save").hidden = $("none").hidden = !state.picked.size;
}

// Pairs side by side with their cosine, then the images that are like no other.
function alike() {
  return answering(async (isLast) => {
    if (state.above === null) say("Comparing all images …");
    const found = await (await ask("alike", { above: state.above })).json();
    if (!isLast()) return;
    state.above = found.above;
    Object.assign($("above"), { min: found.least, value: found.above });
    $("cosine").textContent = found.above.toFixed(3);
    const pairs = found.duplicate.rows.map((pair) => make("div", { className: "pair" }, held(pair, pair.image, pair.other), held(pair, pair.other, pair.image), make("b", { textContent: pair.cosine.toFixed(3) })));
    const title = make("h3", {}, "Near-duplicates", make("span", { textContent: "Below each pair is its cosine. Tick the images for a list." }));
    const none = make("p", { className: "soft", textContent: found.closest === null ? "There is one image only." : `No two images are that alike; the closest two have a cosine of ${found.closest.toFixed(3)}.` });
    const sections = [make("section", { className: "side" }, title, pairs.length ? make("div", { className: "tiles pairs" }, ...pairs) : none)];
    if (found.odd.of) sections.push(side("Like no other", "No other image has one of these among its nearest.", found.odd.rows.map((odd) => odd.image)));
    $("sides").replaceChildren(...sections);
    $("more").hidden = true;
    $("second").hidden = !pairs.length;
    offer();
    const listed = ({ rows, of }, one) => (rows.length < of ? `${rows.length} of ${counted(of, one)}` : counted(of, one));
    say(`${listed(found.duplicate, "pair")} with a cosine of ${found.above.toFixed(3)} or more; ${listed(found.odd, "image")} like no other`);
  });
}

function search() {
  return answering(async (isLast) => {
    const found = await (await ask("search", { ...asked(), ...filters(), place: state.place, k: state.about.shown }, body())).json();
    if (!isLast()) return;
    const rows = found.sides.map((hits) => new Set(hits.map((hit) => hit.row)));
    // Where there are no folders, or one, an image says nothing by its own.
    const folder = found.asked && !state.box && state.about.folders > 1 ? found.asked.folder : null;
    const last = state.about.sides.length - 1, isBlind = $("blind").checked && last > 0;
    const sides = state.about.sides.map((one, i) => side(one.name, [one.what, one.settings[i === last ? state.place : one.start]].filter(Boolean).join("; "), found.sides[i], true, i && !isBlind ? rows[0] : null, folder, found.mates));
    $("sides").replaceChildren(...(isBlind ? unnamed(sides) : sides));
    $("more").hidden = true;
    if (found.asked) $("name").textContent = found.asked.path;
    say(`The nearest of ${counted(found.of, "image")}`);
    $("status").append(make("span", { className: "detail", textContent: `, in ${Math.round(found.ms)} ms` }));
  });
}

// The sides in a random order, without their names until a click: an eye that knows them would see what it hopes for.
function unnamed(sides) {
  const order = Math.random() < 0.5 ? sides : [...sides].reverse();
  const named = order.map((one) => [one.querySelector("h3"), ...one.querySelector("h3").childNodes]);
  for (const [title] of named) {
    const button = make("button", { className: "reveal", textContent: "Which one is it?" });
    button.addEventListener("click", () => named.forEach(([head, ...words]) => head.replaceChildren(...words)));
    title.replaceChildren(button);
  }
  return order;
}

// Where folders are classes: which side is right more often, over all images.
async function judge() {
  const { place } = state, { shares, asked, nearest } = await (await ask("right", { place })).json();
  if (place !== state.place) return;
  const whose = `${asked < state.about.count ? "" : "all "}${counted(asked, "image")}`;
  const sides = shares.map((share, i) => `${(100 * share).toFixed(1)} % (${state.about.sides[i].name})`);
  $("right").textContent = sides.length ? `Of an image's ${nearest} nearest, ${sides.join(" and ")} are from its own folder. Mean over ${whose}.` : "";
}

// The slider: what is left of it is more alike. The mark is at the place that every search begins with.
function turn(place) {
  state.place = place;
  $("place").value = place;
  $("setting").textContent = lastSide().settings[place];
  $("mark").style.left = `calc(8px + (100% - 16px) * ${lastSide().start / (lastSide().settings.length - 1)})`;
}

const lastSide = () => state.about.sides.at(-1);

// The browser keeps an upload as long as the server runs, so that it survives a reload.
const shelf = () => caches.open(location.pathname);

async function shelve(file) {
  await (await shelf()).put("upload", new Response(file, { headers: { "x-name": encodeURIComponent(file.name || "") } }));
}

async function shelved() {
  for (const name of await caches.keys()) if (name !== location.pathname) await caches.delete(name);
  const found = await (await shelf()).match("upload");
  return found ? new File([await found.blob()], decodeURIComponent(found.headers.get("x-name"))) : null;
}

// A query has an address, so that the browser's own Back and Forward work.
const go = (row) => { location.hash = row === null ? "" : `#${row}`; };

function show() {
  const row = /^#\d+$/.test(location.hash) ? Number(location.hash.slice(1)) : null;
  state.file = location.hash === "#upload" ? state.upload : null;
  if (location.hash === "#upload" && !state.file) return go(null);
  Object.assign(state, { row, box: null, alike: location.hash === "#alike" });
  refresh(true);
  scrollTo(0, 0);
}

const isQuery = () => state.row !== null || state.file !== null;

function refresh(fresh) {
  $("query").hidden = !isQuery();
  $("blind-label").hidden = !isQuery() || state.about.sides.length < 2;
  for (const id of ["tasks", "text-label"]) $(id).hidden = state.alike;
  $("twins").hidden = !state.alike;
  document.body.classList.toggle("alike", state.alike);
  document.body.classList.toggle("asking", isQuery());
  $("right").hidden = state.alike;
  $("slider").hidden = state.alike || lastSide().settings.length < 2;
  $("uncrop").hidden = !state.box;
  $("hint").hidden = Boolean(state.box);
  if (!state.box) $("box").hidden = true;
  if (!isQuery()) return state.alike ? alike() : browse();
  if (fresh) preview();
  return search();
}

async function preview() {
  const { row, file } = state;
  $("asked").removeAttribute("src");
  $("name").textContent = state.file ? state.file.name || "pasted image" : "";
  try {
    const picture = await (await ask("preview", { row }, body())).blob();
    if (row !== state.row || file !== state.file) return;
    URL.revokeObjectURL($("asked").dataset.url);
    $("asked").src = $("asked").dataset.url = URL.createObjectURL(picture);
  } catch { /* the search says what is wrong with it */ }
}

function take(file) {
  if (!file) return;
  if (file.size > state.about.most_bytes) return say(`${file.name} has ${(file.size / 2 ** 20).toFixed(0)} MiB, at most ${state.about.most_bytes / 2 ** 20} are taken.`, true);
  state.upload = file;
  shelve(file).catch(() => {});  // a private window may not keep it
  if (location.hash === "#upload") show(); else location.hash = "#upload";
}

function drag(down) {
  if (!$("asked").naturalWidth || down.button) return;
  const frame = $("asked").getBoundingClientRect(), stage = $("stage").getBoundingClientRect();
  const inside = (value, most) => Math.min(Math.max(value, 0), most);
  const x = inside(down.clientX - frame.left, frame.width), y = inside(down.clientY - frame.top, frame.height);
  let box = null;
  const move = (event) => {
    const toX = inside(event.clientX - frame.left, frame.width), toY = inside(event.clientY - frame.top, frame.height);
    const left = Math.min(x, toX), right = Math.max(x, toX), top = Math.min(y, toY), bottom = Math.max(y, toY);
    const width = right - left, height = bottom - top;
    box = Math.min(width, height) < LEAST_DRAG ? null : [left / frame.width, top / frame.height, right / frame.width, bottom / frame.height];
    $("box").hidden = !box;
    const places = { left: left + frame.left - stage.left, top: top + frame.top - stage.top, width, height };
    for (const [name, value] of Object.entries(places)) $("box").style[name] = `${value}px`;
  };
  const up = () => {
    $("stage").removeEventListener("pointermove", move);
    if (box || state.box) { state.box = box; refresh(false); }
  };
  $("stage").setPointerCapture(down.pointerId);
  $("stage").addEventListener("pointermove", move);
  $("stage").addEventListener("pointerup", up, { once: true });
}

// The tile that lies nearest in the direction of the arrow.
function step(key) {
  const tiles = [...document.querySelectorAll(".tile")], here = document.activeElement.closest(".tile");
  if (!tiles.length) return;
  if (!here) return tiles[0].focus();
  const { left, top, width, height } = here.getBoundingClientRect(), along = key === "ArrowLeft" || key === "ArrowRight";
  const sign = key === "ArrowLeft" || key === "ArrowUp" ? -1 : 1;
  const [best] = tiles.map((other) => {
    const place = other.getBoundingClientRect(), dx = place.left - left, dy = place.top - top;
    const ahead = sign * (along ? dx : dy), aside = Math.abs(along ? dy : dx);
    const isAhead = ahead > 2 && (along ? aside < height / 2 : true);
    return [isAhead ? ahead + 4 * (along ? aside : Math.max(0, aside - width / 2)) : Infinity, other];
  }).sort(([a], [b]) => a - b);
  if (best && best[0] < Infinity) best[1].focus();
}

function back() {
  if (document.activeElement === $("text")) return $("text").blur();
  if (state.box) { state.box = null; return refresh(false); }
  if (state.row !== null || state.file || state.alike) return go(null);
  if (state.text || state.task !== null) { $("text").value = state.text = ""; choose(null); }
}

function choose(task) {
  state.task = task;
  for (const input of $("tasks").querySelectorAll("input")) input.checked = (input.value === "all") === (task === null) && (task === null || input.dataset.task === task);
  const select = $("tasks").querySelector("select");
  if (select) select.selectedIndex = 1 + state.about.tasks.findIndex(({ name }) => name === task);
  refresh(false);
}

function tasks() {
  const all = state.about.tasks, named = ({ name }) => name || "(top)";
  if (all.length < 2) return;
  if (all.length > MOST_CHIPS) {
    const select = make("select", {}, make("option", { textContent: `All ${all.length} folders` }), ...all.map((task) => make("option", { textContent: `${named(task)} · ${task.count}` })));
    select.setAttribute("aria-label", "Folder");
    select.addEventListener("change", () => choose(select.selectedIndex ? all[select.selectedIndex - 1].name : null));
    return $("tasks").append(select);
  }
  const chip = (value, task, text, count, unit = "") => {
    const input = make("input", { type: "radio", name: "task", value, checked: task === null });
    if (task !== null) input.dataset.task = task;
    input.addEventListener("change", () => choose(task));
    return make("label", {}, input, make("span", {}, text, " ", make("small", { textContent: count.toLocaleString("en") + unit })));
  };
  $("tasks").append(chip("all", null, "All", state.about.count, " images"), ...all.map((task) => chip("one", task.name, named(task), task.count)));
}

// As large as its place allows, so that regions of small images can be drawn, too.
function fit() {
  const ratio = $("asked").naturalWidth / $("asked").naturalHeight;
  $("asked").style.width = `${$("stage").clientWidth * Math.min(1, TALLEST * ratio)}px`;
}

function wire() {
  $("asked").addEventListener("load", fit);
  addEventListener("hashchange", show);
  $("alike").addEventListener("click", () => { location.hash = "#alike"; });
  $("home").addEventListener("click", () => { state.box = null; go(null); });
  $("uncrop").addEventListener("click", back);
  $("more").addEventListener("click", () => { state.start += 7; browse(); });
  $("stage").addEventListener("pointerdown", drag);
  $("upload").addEventListener("change", () => { take($("upload").files[0]); $("upload").value = ""; });
  $("drop").addEventListener("keydown", (event) => { if (event.key === "Enter") $("upload").click(); });
  $("blind").addEventListener("change", () => search());
  $("details").addEventListener("change", () => document.body.classList.toggle("details", $("details").checked));
  $("place").addEventListener("input", () => { turn(Number($("place").value)); if (isQuery()) search(); });
  $("place").addEventListener("change", judge);
  $("mark").addEventListener("click", () => { turn(lastSide().start); judge(); if (isQuery()) search(); });
  $("above").addEventListener("input", () => { state.above = Number($("above").value); alike(); });
  $("second").addEventListener("click", () => document.querySelectorAll(".pair .held:nth-child(2)").forEach((holder) => pick(holder, true)));
  $("none").addEventListener("click", () => {
    state.picked.clear();
    document.querySelectorAll(".held").forEach((holder) => pick(holder, false));
    offer();
  });
  let waiting;
  $("text").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => { state.text = $("text").value.trim(); refresh(false); }, 150);
  });
  addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("dragging"); });
  addEventListener("dragleave", () => document.body.classList.remove("dragging"));
  addEventListener("drop", (event) => {
    event.preventDefault();
    document.body.classList.remove("dragging");
    const { row } = document.querySelector(".tile.dragged")?.dataset ?? {};
    if (event.dataTransfer.files.length && row === undefined) take(event.dataTransfer.files[0]);
    else if (row !== undefined) go(Number(row));
  });
  addEventListener("dragstart", (event) => event.target.closest?.(".tile")?.classList.add("dragged"));
  addEventListener("dragend", () => document.querySelector(".tile.dragged")?.classList.remove("dragged"));
  addEventListener("paste", (event) => take(event.clipboardData.files[0]));
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const isTyping = document.activeElement === $("text"), isChoosing = document.activeElement.closest("#tasks, [type=range]");
    if (event.key === "Escape") back();
    else if (event.key === "/" && !isTyping) $("text").focus();
    else if (isTyping && (event.key === "Enter" || event.key === "ArrowDown")) step("ArrowDown");
    else if (event.key.startsWith("Arrow") && !isTyping && !isChoosing) step(event.key);
    else return;
    event.preventDefault();
  });
}

async function begin() {
  state.about = await (await ask("about", {})).json();
  const { folder, count } = state.about;
  $("folder").append(`${counted(count, "image")} in ${folder}`);
  $("details").checked = $("blind").checked = false;
  $("place").max = lastSide().settings.length - 1;
  turn(lastSide().start);
  tasks();
  wire();
  state.upload = await shelved().catch(() => null);
  show();
  await judge();
}

begin().catch((error) => say(error.message, true));
