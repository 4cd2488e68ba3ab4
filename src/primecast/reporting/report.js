"use strict";
// Draw the figures of the report. Data and plotly are in the page, gzipped; nothing is fetched.
// Channel names are the user's text: they enter the page as text nodes, and plotly with < and & escaped.

const $ = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const plain = (name) => name.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
// Cut in the middle, since names of sensors differ at their ends.
const short = (name, most) => (name.length > most ? name.slice(0, Math.ceil(most / 2) - 1) + "…" + name.slice(-Math.floor(most / 2)) : name);
// The labels of several channels: cut where they stay different, in the middle, after their common beginning or at the end.
function shorts(names, most) {
  let same = 0;
  while (names.length > 1 && names.every((name) => name.length > same && name[same] === names[0][same])) same += 1;
  const words = same && names[0].slice(0, same).lastIndexOf(" ") + 1; // that they begin with
  if (words && names.some((name) => name.length > most) && names.every((name) => name.length - words < most)) return names.map((name) => "…" + name.slice(words));
  const shared = new Set((names[1] ? names[0] : "").split(" ").filter((word) => names.every((name) => name.split(" ").includes(word))));
  const rest = (name) => name.split(" ").filter((word) => !shared.has(word)).join(" ") || name;
  const ways = [(name) => short(name, most), (name) => short(same ? "…" + name.slice(same) : name, most),
    (name) => (name.length > most ? name.slice(0, most - 1) + "…" : name), (name) => (same && name.length > most ? "…" + name.slice(same, same + most - 2) + "…" : name),
    (name) => short(rest(name), most)];
  const labels = ways.map((way) => names.map(way)), different = labels.map((one) => new Set(one).size);
  return labels[different.indexOf(Math.max(...different))];
}
const SHOWN = 60; // cards at a time
const DRAWN = 120; // edges at a time
const NAMED = 40; // channels whose names fit around the graph
const TICKS = 19; // channels whose names fit beside a map; of more, hover and the table have them
const TIMED = 30; // edges whose times can be told apart
const CELL = 13; // pixels of a row or column that a name needs

async function unpack(id) {
  const bytes = Uint8Array.from(atob($(id).textContent.trim()), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

function svg(kind, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// ---------------------------------------------------------------- what all plots share

const paper = () => document.documentElement.classList.contains("on-paper");
const touch = matchMedia("(pointer: coarse)").matches;
const config = () => ({ displaylogo: false, responsive: true, displayModeBar: touch ? false : "hover", scrollZoom: false });

function layout(more) {
  const axis = { gridcolor: css("--line"), linecolor: css("--line"), zeroline: false };
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: css("--ink") },
    margin: { l: 48, r: 24, t: 10, b: 36 }, dragmode: touch ? false : "zoom",
    hoverlabel: { bgcolor: css("--card"), bordercolor: css("--line"), font: { color: css("--ink") } },
    // Along an axis the margins are fixed: they decide which ticks there are, so that a margin for the last tick may remove it.
    ...more, xaxis: { ...axis, automargin: "height", ...more.xaxis }, yaxis: { ...axis, automargin: "width", ...more.yaxis },
  };
}

// Paper is given in pixels: plotly measures the page only when it is resized.
function draw(place, traces, more) {
  const size = paper() ? { width: place.clientWidth, height: place.clientHeight } : {};
  return Plotly.react(place, traces, layout({ ...more, ...size }), config());
}

// ---------------------------------------------------------------- forecasts

let data, chosen = 0;

function band(level, index, opacity) {
  const [low, high] = data.bounds[level].map((side) => side[index]);
  const line = { mode: "lines", x: data.ahead, hoverinfo: "skip", line: { width: 0 } };
  const text = data.ahead.map((_, step) => `${low[step]} … ${high[step]}`);
  return [
    { ...line, y: low },
    { ...line, y: high, fill: "tonexty", fillcolor: `rgba(${css("--band")}, ${opacity})`,
      name: `${level} %`, text, hoverinfo: "text+name", hovertemplate: "%{text}" },
  ];
}

function drawForecast() {
  const past = { mode: "lines", name: "observed", x: data.past, y: data.values[chosen], line: { color: css("--past"), width: 1.4 } };
  const bands = levels().reverse().flatMap((level, place) => band(level, chosen, 0.14 + 0.1 * place));
  const before = !$("before")?.checked ? [] : data.backtest.map((origin) => ({
    mode: "lines", name: "backtest forecast", x: origin.times, y: origin.values[chosen],
    line: { color: css("--ahead"), width: 1.2, dash: "dot" },
  }));
  const ahead = { mode: "lines", name: "forecast", x: data.ahead, y: data.forecast[chosen], line: { color: css("--ahead"), width: 2.2 } };
  const now = { type: "line", x0: data.past.at(-1), x1: data.past.at(-1), yref: "paper", y0: 0, y1: 1,
    line: { color: css("--soft"), width: 1, dash: "dot" } };
  const from = data.past.at(-3 * data.ahead.length) ?? data.past[0]; // a phone begins with the last rows
  const xaxis = $("forecast").clientWidth < 520 ? { range: [from, data.ahead.at(-1)], nticks: 4, tickangle: 0 } : {};
  const unit = data.units[chosen];
  $("chosen").textContent = data.channels[chosen];
  listSteps();
  const yaxis = { ...(unit ? { title: { text: plain(unit) } } : {}), ...(data.ranges[chosen] ? { range: data.ranges[chosen] } : {}) };
  return draw($("forecast"), [past, ...before, ...bands, ahead], { hovermode: "x unified", shapes: [now], xaxis, yaxis });
}

// The steps of the chosen channel, and the rows of the download: time, then per channel the forecast, its lower and upper bounds.

const levels = () => Object.keys(data.bounds).sort((one, other) => one - other);

function columnsOf(index, name) {
  const bound = (level, side) => [`${name}-${side ? "hi" : "lo"}-${level}`, data.bounds[level][side][index]];
  const low = levels().reverse().map((level) => bound(level, 0)), high = levels().map((level) => bound(level, 1));
  return [[name, data.forecast[index]], ...low, ...high];
}

function row(tag, texts, kinds = []) {
  const line = document.createElement("tr");
  line.append(...texts.map((text, place) => {
    const cell = document.createElement(tag), inner = document.createElement("bdi");
    inner.textContent = text;
    cell.append(inner);
    if (kinds[place]) cell.className = kinds[place];
    return cell;
  }));
  return line;
}

function listSteps() {
  if (!$("steps").open) return;
  const columns = columnsOf(chosen, "forecast");
  $("steps-head").replaceChildren(row("th", [data.indexName, ...columns.map(([name]) => name.replace("forecast-", "").replace("-", " ") + (name === "forecast" ? "" : " %"))]));
  $("steps-body").replaceChildren(...data.stamps.map((time, step) => row("td", [time, ...columns.map(([, values]) => values[step] ?? "")])));
}

function csv() {
  const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);
  const columns = data.forecast.flatMap((_, index) => columnsOf(index, data.channels[index]));
  const lines = data.stamps.map((time, step) => [time, ...columns.map(([, values]) => values[step] ?? "")].join(","));
  return [[data.indexName, ...columns.map(([name]) => name)].map(quoted).join(","), ...lines, ""].join("\n");
}

function download() {
  const link = document.createElement("a");
  // The byte order mark tells spreadsheets that the text is UTF-8.
  link.href = URL.createObjectURL(new Blob(["\ufeff", csv()], { type: "text/csv" }));
  link.download = "forecast.csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function spark(index) {
  const width = 150, height = 40;
  const past = data.values[index].slice(-3 * data.ahead.length);
  const all = [...past, ...data.forecast[index]], range = data.ranges[index];
  const known = all.filter((value) => value !== null && !(range && (value < range[0] || value > range[1])));
  const low = Math.min(...known), span = Math.max(...known) - low || 1;
  const place = (value, step) => `${((step / (all.length - 1)) * width).toFixed(1)},${(height - 3 - ((value - low) / span) * (height - 6)).toFixed(1)}`;
  const points = (values, from) => values.map((value, step) => (value === null ? null : place(value, from + step))).filter(Boolean).join(" ");
  const line = (values, from, color) => svg("polyline", { points: points(values, from), fill: "none", style: `stroke: var(${color})`,
    "stroke-width": 1.3, "vector-effect": "non-scaling-stroke" });
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    line(past, 0, "--past"), line([past.at(-1), ...data.forecast[index]], past.length - 1, "--ahead"));
}

function listCards() {
  const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = data.forecast.map((_, index) => index)
    .filter((index) => words.every((word) => data.channels[index].toLowerCase().includes(word)));
  $("cards").replaceChildren(...found.slice(0, SHOWN).map((index) => {
    const name = document.createElement("span"), button = document.createElement("button");
    name.textContent = name.title = data.channels[index];
    name.dir = "auto";
    button.type = "button";
    button.append(name, spark(index));
    button.setAttribute("aria-pressed", index === chosen);
    button.dataset.channel = index;
    return button;
  }));
  const advice = document.createElement("span");
  advice.className = "screen";
  advice.textContent = ", type more of the name";
  $("found").textContent = `${found.length} of ${data.forecast.length} channels`;
  if (found.length > SHOWN) $("found").append(`; the first ${SHOWN} are shown`, advice);
  return found;
}

function choose(index) {
  chosen = index;
  for (const button of $("cards").children) button.setAttribute("aria-pressed", Number(button.dataset.channel) === chosen);
  return drawForecast();
}

// ---------------------------------------------------------------- who leads whom

function pairsShown() {
  const least = Number($("threshold").value), strong = (pairs) => pairs.filter(([, , , , strength]) => Math.abs(strength) >= least);
  const leads = strong(data.leads);
  return [leads, $("together")?.checked ? strong(data.together).slice(0, Math.max(0, DRAWN - leads.length)) : []];
}

function drawGraph() {
  const [leads, together] = pairsShown(), pairs = [...leads.slice(0, DRAWN), ...together];
  const cut = leads.length > DRAWN ? `, the strongest ${DRAWN} are drawn` : "";
  $("level").textContent = `${Number($("threshold").value).toFixed(2)}: ${leads.length} of ${data.leadsInAll.toLocaleString("en")} leads${cut}`;
  const used = new Set(pairs.flatMap(([leader, follower]) => [leader, follower]));
  const nodes = data.channels.map((_, index) => index).filter((index) => data.channels.length <= NAMED || used.has(index));
  const width = Math.max(300, $("graph").clientWidth), narrow = width < 520;
  const spokes = nodes.length > 20; // too many for horizontal names: they point outwards
  const most = narrow ? 9 : spokes ? 16 : 22, height = narrow ? width * (spokes ? 1.1 : 0.95) : Math.min(spokes ? 760 : Math.min(620, 230 + 40 * nodes.length), width * 0.8);
  const longest = Math.min(most, Math.max(0, ...nodes.map((index) => data.channels[index].length)));
  const across = width / 2 - 8 * longest - 16, up = spokes ? height / 2 - 8.5 * longest - 14 : height / 2 - 26;
  const [rx, ry] = narrow ? [across, Math.min(up, across * 1.2)] : [Math.min(across, up * 1.5), up];
  const place = new Map(nodes.map((index, number) => {
    const angle = (2 * Math.PI * number) / nodes.length - Math.PI / 2;
    return [index, { x: width / 2 + rx * Math.cos(angle), y: height / 2 + ry * Math.sin(angle), angle }];
  }));
  const arrow = (id, kind) => svg("marker", { id, class: kind, viewBox: "0 0 10 10", refX: 9, refY: 5, markerWidth: 9, markerHeight: 9,
    orient: "auto", markerUnits: "userSpaceOnUse" }, svg("path", { d: "M0,1 L10,5 L0,9 Z" }));
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Who leads whom; the table below has the same pairs" },
    svg("defs", {}, arrow("with", ""), arrow("against", "against")));
  const times = [];
  for (const [leader, follower, steps, time, strength] of [...pairs].reverse()) {
    const from = place.get(leader), to = place.get(follower);
    const middle = { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 };
    const bend = { x: middle.x + (width / 2 - middle.x) * 0.35, y: middle.y + (height / 2 - middle.y) * 0.35 };
    const gap = Math.hypot(to.x - bend.x, to.y - bend.y) || 1;
    const end = { x: to.x - ((to.x - bend.x) * 8) / gap, y: to.y - ((to.y - bend.y) * 8) / gap };
    const kind = `${strength < 0 ? "against" : ""} ${steps ? "" : "together"}`.trim();
    const path = svg("path", { d: `M${from.x},${from.y} Q${bend.x},${bend.y} ${end.x},${end.y}`, class: kind,
      "stroke-width": (0.8 + (narrow ? 2 : 3.5) * Math.abs(strength)).toFixed(2) }, svg("title", {}, sentence(leader, follower, steps, time, strength)));
    if (steps) path.setAttribute("marker-end", strength < 0 ? "url(#against)" : "url(#with)");
    root.append(path);
    if (steps && pairs.length <= (narrow ? 12 : TIMED)) times.push([from, bend, end, time]);
  }
  root.append(...timeLabels(times));
  const labels = shorts([...place.keys()].map((index) => data.channels[index]), most), label_of = new Map([...place.keys()].map((index, number) => [index, labels[number]]));
  for (const [index, { x, y, angle }] of place) {
    const label = svg("text", spokes ? outwards(x, y, angle) : beside(x, y, angle), label_of.get(index), svg("title", {}, data.channels[index]));
    root.append(svg("g", used.has(index) ? {} : { class: "alone" }, svg("circle", { cx: x, cy: y, r: 4 }), label));
  }
  $("graph").replaceChildren(root);
  $("leads-body").replaceChildren(...leads.slice(0, 40).map(([leader, follower, , time, strength]) =>
    row("td", [data.channels[leader], data.channels[follower], time, strength.toFixed(2)], ["text", "text"])));
}

// The time of an edge stands at the first place along it where it covers no other time.
function timeLabels(edges) {
  const taken = [];
  return edges.flatMap(([from, bend, end, time]) => {
    const half = { x: 3.4 * time.length + 2, y: 7 };
    const along = (part) => ["x", "y"].map((axis) => (1 - part) ** 2 * from[axis] + 2 * part * (1 - part) * bend[axis] + part ** 2 * end[axis]);
    const free = ([x, y]) => taken.every((one) => Math.abs(one.x - x) > half.x + one.half.x || Math.abs(one.y - y) > half.y + one.half.y);
    const at = [0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74].map(along).find(free);
    if (!at) return []; // the edge has it on hover, and the table
    const [x, y] = at;
    taken.push({ x, y, half });
    return [svg("text", { class: "time", x, y: y + 4, "text-anchor": "middle" }, time)];
  });
}

function beside(x, y, angle) {
  const side = Math.cos(angle), anchor = Math.abs(side) < 0.15 ? "middle" : side > 0 ? "start" : "end";
  const down = anchor === "middle" ? 18 * Math.sign(Math.sin(angle)) + 4 : 4.5;
  return { x: x + 10 * Math.sign(Math.round(side * 10)), y: y + down, "text-anchor": anchor };
}

function outwards(x, y, angle) {
  const left = Math.cos(angle) < 0, degrees = (180 * angle) / Math.PI + (left ? 180 : 0);
  return { x: left ? -9 : 9, y: 4.5, "text-anchor": left ? "end" : "start", transform: `translate(${x},${y}) rotate(${degrees})` };
}

function sentence(leader, follower, steps, time, strength) {
  const names = [data.channels[leader], data.channels[follower]];
  const how = steps ? `${names[0]} leads ${names[1]} by ${time}` : `${names[0]} and ${names[1]} move together`;
  return `${how}, correlation ${strength.toFixed(2)}`;
}

// ---------------------------------------------------------------- maps and bars

function drawMap(map, number) {
  if (!map) return null; // without structure: the page says so
  const place = $(`map-${number}`), wide = place.clientWidth;
  const names = map.channels.map((index) => data.channels[index]), places = names.map((_, index) => index);
  const most = wide < 420 ? 9 : 14, room = wide - 90 - 6.5 * Math.min(most, Math.max(...names.map((name) => name.length)));
  const named = names.length <= TICKS && room / names.length >= CELL;
  const ticks = !named ? { showticklabels: false, ticks: "" }
    : { tickvals: places, ticktext: shorts(names, most).map(plain), tickfont: { size: 11 }, ticks: "" };
  const text = map.values.map((row, i) => row.map((_, j) => `${plain(names[i])} → ${plain(names[j])}`));
  const trace = { type: "heatmap", z: map.values, x: places, y: places, text, hovertemplate: "%{text}<br>%{z}<extra></extra>",
    colorscale: [[0, css("--low")], [0.5, css("--middle")], [1, css("--high")]], zmin: 0, zmax: Math.max(...map.values.flat().filter((value) => value !== null), 1e-9), xgap: named ? 1 : 0, ygap: named ? 1 : 0,
    colorbar: { thickness: 10, len: 0.9, outlinewidth: 0 } };
  if (named) place.style.height = `${Math.max(21, 10 + 1.1 * names.length)}rem`;
  const how = named || paper() ? "" : ", names on hover", upright = room / names.length > 7 * Math.min(most, Math.max(...names.map((name) => name.length)));
  return draw(place, [trace], { margin: { l: 40, r: 10, t: 4, b: 52 }, hovermode: "closest",
    xaxis: { ...ticks, title: { text: `key channel${how}` }, showgrid: false, tickangle: upright ? 0 : -90 },
    yaxis: { ...ticks, title: { text: "query channel", standoff: 6 }, showgrid: false, autorange: "reversed" } });
}

function drawHours() {
  const { hour, coverage } = data.hours, names = Object.keys(coverage).sort((one, other) => one - other);
  const lines = names.map((level, place) => ({ mode: "lines+markers", name: `${level} %`, x: hour, y: coverage[level].map((value) => 100 * value),
    line: { color: css(place ? "--lead" : "--ahead"), width: 1.8 }, marker: { size: 5 }, hovertemplate: "%{y:.1f} %" }));
  const wanted = names.map((level, place) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: Number(level), y1: Number(level),
    line: { color: css(place ? "--lead" : "--ahead"), width: 1, dash: "dot" } }));
  const least = Math.min(...lines.flatMap((line) => line.y), ...names.map(Number));
  return draw($("hours"), lines, { hovermode: "x unified", showlegend: true, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    margin: { l: 48, r: 12, t: 26, b: 40 }, shapes: wanted, xaxis: { title: { text: "hour of the day" }, dtick: $("hours").clientWidth < 520 ? 6 : 3 },
    yaxis: { title: { text: "coverage, %" }, range: [Math.max(0, least - 8), 101] } });
}

function drawAblation() {
  const rows = [...data.sensor_ablation].reverse(), places = rows.map((_, index) => index);
  const percent = (value) => 100 * value;
  const bars = { type: "bar", orientation: "h", x: rows.map((row) => percent(row.mean)), y: places, name: "mean over the other channels",
    marker: { color: css("--lead") }, hovertemplate: "%{x:.2f} %" };
  const worst = { mode: "markers", x: rows.map((row) => percent(row.largest)), y: places, name: "most affected channel",
    text: rows.map((row) => plain(row.channel)), marker: { color: css("--ahead"), size: 9, symbol: "diamond" }, hovertemplate: "%{text}: %{x:.2f} %" };
  $("sensor_ablation").style.height = `${Math.max(12, 4.5 + (paper() ? 1.1 : 1.6) * rows.length)}rem`;
  return draw($("sensor_ablation"), [bars, worst], { hovermode: "y unified", showlegend: true, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    margin: { l: 60, r: 24, t: 30, b: 44 }, bargap: 0.45,
    xaxis: { title: { text: "growth of the squared error, %" }, zeroline: true, zerolinecolor: css("--soft") },
    yaxis: { tickvals: places, ticktext: shorts(rows.map((row) => row.sensor), $("sensor_ablation").clientWidth < 520 ? 18 : 30).map(plain), showgrid: false } });
}

// ---------------------------------------------------------------- start

function drawAll() {
  const drawn = [drawForecast(), ...data.maps.map(drawMap)];
  if ($("graph")) drawGraph();
  if (data.hours) drawn.push(drawHours());
  if (data.sensor_ablation) drawn.push(drawAblation());
  return Promise.all(drawn);
}

// A drawing keeps its width and its colors, so all are drawn anew for paper, where nothing can be hovered over.
function printing(now) {
  if (now === paper()) return;
  document.documentElement.classList.toggle("on-paper", now);
  for (const table of document.querySelectorAll("#inside details")) table.open = now;
  drawAll();
  if (!now) dispatchEvent(new Event("resize")); // back to the width of the screen
}

async function start() {
  data = JSON.parse(await unpack("data"));
  const script = document.createElement("script");
  script.textContent = await unpack("plotly");
  document.head.append(script);

  listCards();
  $("cards").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) choose(Number(button.dataset.channel));
  });
  $("search").addEventListener("input", listCards);
  $("search").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && $("cards").firstChild) choose(Number($("cards").firstChild.dataset.channel));
  });
  $("steps").addEventListener("toggle", listSteps);
  $("download").addEventListener("click", download);
  $("download").hidden = false;
  $("before")?.addEventListener("change", drawForecast);
  for (const id of ["threshold", "together"]) $(id)?.addEventListener("input", drawGraph);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  matchMedia("print").addEventListener("change", (event) => printing(event.matches));
  addEventListener("beforeprint", () => printing(true));
  addEventListener("afterprint", () => printing(false));
  let waiting;
  addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(() => $("graph") && drawGraph(), 100); });

  await drawAll();
  document.documentElement.dataset.ready = "yes";
}

start().catch((error) => {
  const note = $("broken");
  note.hidden = false;
  note.textContent = `The drawings need a browser of 2023 or newer (${error.message}); the tables below are complete without them.`;
  throw error;
});
