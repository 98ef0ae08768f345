/* SPDX-License-Identifier: BSD-3-Clause */
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const scenarios = data.scenarios;
const RESULTS = ["pass", "fail", "error", "skip"];
const STATES = {logged: "changed and marked", missed: "changed and not marked",
	stale: "its copy was old in the end", ignored: "missed, of a class that is ignored",
	ambiguous: "of a packed ring, missed with one log address only",
	extra: "marked and not changed"};
/* Failures that are open at the beginning, and pages of each that are listed. */
const OPEN = 3, LISTED = 64;
const SVG = "http://www.w3.org/2000/svg";

const by_id = (id) => document.getElementById(id);
const number = (value, digits = 0) => value.toLocaleString("en", {
	maximumFractionDigits: digits, minimumFractionDigits: digits});
const sum = (list, of) => list.reduce((total, one) => total + of(one), 0);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name);
const bad = (s) => s.result === "fail" || s.result === "error";
const marked = (s) => s.logged + s.extra;

/* All text goes in as text: much of it comes from the backend. */
function add(parent, name, text = "", kind = "") {
	const element = document.createElement(name);

	element.textContent = text;
	if (kind)
		element.className = kind;
	parent.append(element);
	return element;
}

function add_heads(row, scope, ...texts) {
	for (const text of texts)
		add(row, "th", text).scope = scope;
}

function add_table(parent, caption, ...heads) {
	const table = add(add(parent, "div", "", "scroll"), "table");

	add(table, "caption", caption);
	if (heads.length)
		add_heads(add(add(table, "thead"), "tr"), "col", ...heads);
	return add(table, "tbody");
}

/* ---- The run -------------------------------------------------------------------------------- */

function show_head() {
	const backend = data.backend;
	const result = by_id("result");
	const size = backend.capacity ? `, ${number(backend.capacity / 1048576, 1)} MiB` : "";

	document.title = `silt check: ${data.result}`;
	result.textContent = data.result;
	result.className = data.result;
	by_id("summary").textContent = data.reason ? data.reason :
		`${backend.target}: ${backend.device} device, ${backend.queues} queues${size}` +
		`${backend.read_only ? ", read-only" : ""}; features ${backend.features}, protocol ` +
		`features ${backend.protocol_features}; seed ${data.seed}, silt ${data.silt}`;
}

function show_figures() {
	const known = scenarios.filter((s) => s.known).length;
	const measured = scenarios.filter((s) => s.mode !== "restart");
	const changed = sum(measured, (s) => s.changed);
	const figures = [
		...RESULTS.map((result) => [result, scenarios.filter((s) => s.result === result).length]),
		["known", known],
		["changed", sum(scenarios, (s) => s.changed)],
		["missed", data.missed_pages],
		["extra", sum(scenarios, (s) => s.extra)],
		["late", sum(scenarios, (s) => s.late)],
		["ignored", sum(scenarios, (s) => s.ignored)],
		["ambiguous", sum(scenarios, (s) => s.ambiguous)],
	];
	const names = {pass: "scenarios passed", fail: "failed", error: "in error", skip: "skipped",
		known: "known failures among them", changed: "pages changed",
		missed: "pages missed or stale", extra: "pages marked though unchanged",
		late: "marks in a log that was replaced before", ignored: "missed pages of ignored classes",
		ambiguous: "pages of packed rings missed with one log address only"};
	const body = add(by_id("figures"), "tbody");

	for (const [id, value] of figures) {
		const row = add(body, "tr");

		add_heads(row, "row", names[id]);
		add(row, "td", number(value), "number").id = `count-${id}`;
	}
	if (changed) {
		const row = add(body, "tr");

		add_heads(row, "row", "marked for each changed");
		add(row, "td", number(sum(measured, marked) / changed, 2), "number").id = "ratio";
	}
	const row = add(body, "tr");
	add_heads(row, "row", "seconds");
	add(row, "td", number(data.seconds, 1), "number");
}

/* ---- What is wrong ---------------------------------------------------------------------------- */

function svg(parent, name, attributes) {
	const element = document.createElementNS(SVG, name);

	for (const [key, value] of Object.entries(attributes))
		element.setAttribute(key, value);
	parent.append(element);
	return element;
}

/* Two lanes: what had to be logged, and what was. */
function draw_pages(parent, state, x, y, width, lane) {
	const group = svg(parent, "g", {class: state});
	const expected = state !== "extra", logged = state === "logged" || state === "extra";

	[expected, logged].forEach((filled, i) => svg(group, "rect", {
		x: x + 0.5, y: y + i * (lane + 2), width: Math.max(width - 1, 1), height: lane,
		class: filled ? state : "hollow"}));
	return group;
}

function address(gpa) {
	return "0x" + gpa.toString(16);
}

function stretch_title(stretch, gpa, pages) {
	const last = gpa + BigInt(pages - 1) * 4096n;
	const where = pages > 1 ? `pages ${address(gpa)} to ${address(last)}` : `page ${address(gpa)}`;

	return `${where}: ${stretch.state}, ${STATES[stretch.state]}. ${stretch.what}`;
}

/* Stretches are cut where a row ends; a gap shows that addresses do not go on. */
function draw_strip(parent, strip, name) {
	const LEFT = 100, RIGHT = 1070, LANE = 9, ROW = 2 * LANE + 12;
	const total = sum(strip, (s) => s.pages);
	const cell = Math.max(4, Math.min(12, (RIGHT - LEFT) / total));
	const picture = svg(parent, "svg", {class: "strip", role: "img",
		"aria-label": `pages of ${name}: ` + Object.keys(STATES).map((state) =>
			`${sum(strip.filter((s) => s.state === state), (s) => s.pages)} ${state}`).join(", ")});
	let x = LEFT, y = 0, expected = null;

	function label(gpa) {
		svg(picture, "text", {x: 0, y: y + LANE + 5}).textContent = address(gpa);
	}
	for (const stretch of strip) {
		let gpa = BigInt(stretch.gpa), left = stretch.pages;

		if (expected !== null && gpa !== expected)
			x += 4;
		while (left) {
			if (x + cell > RIGHT) {
				x = LEFT;
				y += ROW;
			}
			if (x === LEFT)
				label(gpa);
			const pages = Math.min(left, Math.floor((RIGHT - x) / cell + 1e-6));
			const group = draw_pages(picture, stretch.state, x, y, pages * cell, LANE);

			svg(group, "title", {}).textContent = stretch_title(stretch, gpa, pages);
			x += pages * cell;
			gpa += BigInt(pages) * 4096n;
			left -= pages;
		}
		expected = gpa;
	}
	picture.setAttribute("viewBox", `0 0 ${RIGHT + 10} ${y + ROW}`);
}

function show_legend() {
	by_id("strip-key").hidden = false;
	for (const [state, meaning] of Object.entries(STATES)) {
		if (!scenarios.some((s) => s.strip.some((stretch) => stretch.state === state)))
			continue;
		const box = svg(by_id("legend"), "svg", {viewBox: "0 0 12 24", class: "strip",
			"aria-hidden": "true", style: "display: inline"});
		draw_pages(box, state, 0, 1, 12, 9);
		by_id("legend").append(`${state}: ${meaning}`);
	}
}

function list_pages(parent, s) {
	const body = add_table(parent, s.pages.length > LISTED ?
		`The first ${LISTED} of ${s.pages.length} missed or stale pages` :
		"Missed or stale pages", "page", "class", "what lies there", "request", "for a guest");

	for (const page of s.pages.slice(0, LISTED)) {
		const row = add(body, "tr");

		add(row, "td", page.gpa, "mono");
		for (const key of ["class", "what", "request", "consequence"])
			add(row, "td", page[key]);
	}
}

function show_failure(s, open) {
	const box = add(by_id("failures"), "details");
	const head = add(box, "summary");

	box.open = open;
	box.scenario = s;
	add(head, "strong", (s.verdict || s.result) + " ", s.result);
	add(head, "code", s.name);
	head.append(s.known ? " (known)" : "");
	add(box, "pre", s.reason);
	if (s.strip.length)
		draw_strip(box, s.strip, s.name);
	if (s.pages.length)
		list_pages(box, s);
	add(box, "p", "Again: ").append(add(box, "code", s.repro));
}

function show_failures() {
	const wrong = scenarios.filter(bad);

	wrong.sort((a, b) => a.known - b.known);
	if (!wrong.length)
		add(by_id("failures"), "p", data.reason ? "The run could not be made." : "Nothing.");
	if (wrong.some((s) => s.strip.length))
		show_legend();
	wrong.forEach((s, i) => show_failure(s, i < OPEN));
}

/* ---- Cost ------------------------------------------------------------------------------------- */

const axis = (label) => ({label, stroke: colour("ink"), grid: {stroke: colour("line")},
	ticks: {stroke: colour("line")}, size: 70});

function chart(id, x, labels, values, colours, y_label) {
	const options = {
		width: by_id(id).clientWidth - 2, height: 260,
		scales: {x: {time: false}, y: {range: (u, low, high) => [0, high * 1.05 || 1]}},
		axes: [{...axis("seconds"), size: 50}, axis(y_label)],
		series: [{label: "s", value: (u, v) => v === null ? "" : number(v, 2)},
			...labels.map((label, i) => ({label, stroke: colours[i], width: 2, spanGaps: true,
				dash: i ? [6, 4] : [], points: {show: true, size: 6},
				value: (u, v) => v === null ? "" : number(v)}))],
	};

	new uPlot(options, [x, ...values], by_id(id));
}

function show_cost() {
	const cost = data.cost, place = by_id("cost");

	if (!cost || cost.failed) {
		add(place, "p", cost ? `Not measured: ${cost.failed}` :
			"Not measured in this run: it was not a whole one, and --cost was not given.");
		return;
	}
	add(place, "p", cost.meaning).id = "cost-meaning";
	const body = add_table(place, `Medians, ${cost.requests}`);
	for (const [id, name, value, digits] of [
		["off", "requests a second, logging off", cost.off_per_second, 0],
		["on", "requests a second, logging on", cost.on_per_second, 0],
		["share", "on against off", cost.share, 3],
		["changed", "pages changed", cost.changed, 0],
		["marked", "pages marked", cost.marked, 0],
		["ratio", "marked for each changed", cost.marked_per_changed, 2]]) {
		const row = add(body, "tr");

		add_heads(row, "row", name);
		add(row, "td", number(value, digits), "number").id = `cost-${id}`;
	}
	add(place, "div", "", "chart").id = "cost-chart";
	const rate = (logging) => cost.slices.map((slice) =>
		slice.logging === logging ? slice.requests / slice.seconds : null);
	chart("cost-chart", cost.slices.map((slice) => slice.at), ["logging off", "logging on"],
		[rate(false), rate(true)], [colour("logged"), colour("fail")], "requests a second");
}

/* ---- Axes and results ------------------------------------------------------------------------- */

/* Scenarios with the same axes are of one family, which the beginning of their names tells. */
function families() {
	const found = new Map();

	for (const s of scenarios) {
		const key = [s.mode, ...Object.keys(s.axes)].join(" ");

		found.set(key, [...found.get(key) || [], s]);
	}
	return [...found.values()].map((list) => {
		const words = list.map((s) => s.name.split("/"));
		let n = 0;

		while (n < 2 && words.every((w) => w.length > n + 1 && w[n] === words[0][n]))
			n++;
		return {name: words[0].slice(0, n).join("/") || list[0].mode,
			axes: Object.keys(list[0].axes), scenarios: list};
	});
}

function worst(list) {
	return ["fail", "error", "pass", "skip"].find((result) => list.some((s) => s.result === result));
}

let chosen = null; /* a value of an axis, {family, axis, value} */

function choose(button, choice) {
	const again = button.getAttribute("aria-pressed") === "true";

	for (const other of document.querySelectorAll(".matrix button"))
		other.setAttribute("aria-pressed", "false");
	button.setAttribute("aria-pressed", String(!again));
	chosen = again ? null : choice;
	filter();
}

function show_matrix(family) {
	const body = add_table(by_id("matrix"), family.name);

	body.parentElement.className = "matrix";
	for (const name of family.axes) {
		const row = add(body, "tr");

		add_heads(row, "row", name);
		for (const value of new Set(family.scenarios.map((s) => s.axes[name]))) {
			const list = family.scenarios.filter((s) => s.axes[name] === value);
			const run = list.filter((s) => s.result !== "skip").length;
			const passed = list.filter((s) => s.result === "pass").length;
			const button = add(add(row, "td", "", worst(list)), "button",
				`${value} ${run ? `${passed}/${run}` : "skipped"}`);

			button.type = "button";
			button.setAttribute("aria-pressed", "false");
			button.title = RESULTS.map((result) =>
				`${list.filter((s) => s.result === result).length} ${result}`).join(", ");
			button.addEventListener("click", () => choose(button,
				{axis: name, value, family}));
		}
	}
}

/* ---- Over time -------------------------------------------------------------------------------- */

function show_rates() {
	const run = scenarios.filter((s) => s.seconds > 0 && s.changed);
	const ends = [];

	run.reduce((at, s) => ends[ends.push(at + s.seconds) - 1], 0);
	if (!run.length) {
		by_id("rates").remove();
		return;
	}
	chart("pages-chart", ends, ["changed", "marked"],
		[run.map((s) => s.changed / s.seconds), run.map((s) => marked(s) / s.seconds)],
		[colour("logged"), colour("extra")], "pages a second");
}

/* ---- Scenarios -------------------------------------------------------------------------------- */

function show_scenarios(family) {
	const numbers = ["changed", "logged", "missed", "extra", "stale", "late", "ignored",
		"ambiguous"];
	const hostile = family.scenarios[0].mode === "hostile";
	const body = add_table(by_id("scenarios"), family.name, "result", "name", ...family.axes,
		...(hostile ? [] : numbers), "ms", "why");

	for (const s of family.scenarios) {
		const row = add(body, "tr", "", s.result);

		row.scenario = s;
		add(row, "td", (s.verdict || s.result) + (s.known ? " (known)" : ""));
		add(row, "td", s.name, "mono");
		for (const name of family.axes)
			add(row, "td", s.axes[name]);
		for (const key of hostile ? [] : numbers)
			add(row, "td", number(s[key]), "number");
		add(row, "td", number(s.seconds * 1000), "number");
		add(row, "td", s.reason);
	}
}

/* What was not chosen, or has another name, is hidden: failures and rows of the tables. */
function filter() {
	const text = by_id("filter").value;
	const wanted = new Set(scenarios.filter((s) => s.name.includes(text) &&
		(!chosen || chosen.family.scenarios.includes(s) && s.axes[chosen.axis] === chosen.value)));
	const rows = [...document.querySelectorAll("#scenarios tbody tr")];
	const shown = rows.filter((row) => wanted.has(row.scenario));

	for (const element of [...rows, ...document.querySelectorAll("#failures details")])
		element.hidden = !wanted.has(element.scenario);
	by_id("shown").textContent = `${shown.length} of ${rows.length} shown` +
		(chosen ? `: ${chosen.family.name}, ${chosen.axis} ${chosen.value}` : "");
}

show_head();
show_figures();
families().forEach(show_matrix);
show_failures();
show_cost();
show_rates();
families().forEach(show_scenarios);
by_id("filter").addEventListener("input", filter);
filter();
