/* SPDX-License-Identifier: BSD-3-Clause */
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const rows = data.rows;
const WIDTH = 1038;
/* Told apart also by those who see fewer colours; the disk's comes first. */
const OWNER_COLOURS = ["#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8d6ab8",
	"#7f7f7f", "#b59f00"];

const by_id = (id) => document.getElementById(id);
const number = (value, digits = 0) => value.toLocaleString("en", {
	maximumFractionDigits: digits, minimumFractionDigits: digits});
const mebibytes = (bytes) => number(bytes / 1048576, 1) + " MiB";

function show_head() {
	const guest = data.guest;
	const result = by_id("result");

	result.textContent = data.result;
	result.className = data.result === "equal" ? "equal" : "wrong";
	by_id("summary").textContent = `${guest.vcpus} ${guest.kvm ? "vCPUs under KVM" : "threads"}, ` +
		`${mebibytes(guest.memory)}, ${number(guest.rate)} pages a second (${guest.pattern}), ` +
		`${number(guest.disk_rate)} reads a second; tracked by ${guest.tracked_by}` +
		(data.goals.bandwidth ? `; at most ${mebibytes(data.goals.bandwidth)} a second` : "") +
		(data.reason ? `. ${data.reason}` : "");
}

function show_figures() {
	const figures = [
		["downtime", `${number(data.downtime_ms, 1)} ms; goal ${number(data.goals.downtime_ms)} ms, ` +
			`expected ${number(data.expected_downtime_ms, 1)} ms`],
		["total time", `${number(data.total_ms / 1000, 2)} s in ${data.rounds} rounds`],
		["sent", `${number(data.pages_sent)} pages, ${number(data.zero_pages)} of them zero; ` +
			mebibytes(data.bytes_sent)],
		["the guest counted", `${number(data.counters.writes)} pages written and ` +
			`${number(data.counters.reads)} reads; ${data.counters.wrong_pages} pages wrong at ` +
			`arrival, ${data.counters.wrong_pages_later} after running on`],
		["memory, source", data.source_hash, "mono"],
		["memory, destination", data.destination_hash, "mono"],
	];

	for (const [name, text, kind] of figures) {
		const row = by_id("figures").insertRow();

		row.insertCell().textContent = name;
		const cell = row.insertCell();
		cell.textContent = text;
		cell.className = kind || "";
	}
}

/* A value of a logarithmic axis is not 0. */
const positive = (value) => value > 0 ? value : null;

function show_convergence() {
	const shown = rows.filter((row) => !row.last);
	const seconds = shown.map((row) => (row.began_ms + row.total_ms) / 1000);
	const now = shown.map((row) => positive(row.forecast.now_ms));
	const floor = shown.map((row) => positive(row.forecast.floor_ms));
	const goal = shown.map(() => data.goals.downtime_ms);
	const options = {
		width: WIDTH, height: 320,
		scales: {x: {time: false, range: (u, low, high) => [0, high || 1]}, y: {distr: 3}},
		axes: [{label: "seconds since the migration began"}, {label: "ms of downtime", size: 70}],
		series: [
			{label: "s", value: (u, v) => v === null ? "" : number(v, 2)},
			{label: "paused now", stroke: "#0072b2", width: 2, points: {show: true, size: 7}},
			{label: "floor that rounds lead to", stroke: "#999", dash: [2, 4]},
			{label: "goal", stroke: "#c01c28", width: 2, dash: [8, 5], points: {show: false}},
		],
	};

	new uPlot(options, [seconds, now, floor, goal], by_id("convergence"));
}

/* Bars on top of each other are drawn as their sums, the largest first. */
function stacked(id, labels, colours, values, axis) {
	const sums = [];

	values.forEach((series, i) => {
		sums.push(series.map((value, x) => value + (i ? sums[i - 1][x] : 0)));
	});
	const options = {
		width: WIDTH, height: 280,
		scales: {x: {time: false, range: (u, low, high) => [low - 0.6, high + 0.6]},
			y: {range: (u, low, high) => [0, high * 1.05 || 1]}},
		axes: [{label: "round", incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]},
			{label: axis, size: 80}],
		series: [{label: "round"}].concat(labels.map((label, i) => ({
			label, fill: colours[i], stroke: colours[i], width: 0,
			paths: uPlot.paths.bars({size: [0.7, 60]}), points: {show: false},
			value: (u, v, s, x) => x === null ? "" : number(values[i][x], 2),
		})).reverse()),
	};

	new uPlot(options, [rows.map((row) => row.round), ...sums.slice().reverse()], by_id(id));
}

function show_steps() {
	const names = {get_ms: "KVM's bitmaps", merge_ms: "merge", misaligned_ms: "merge, misaligned",
		log_ms: "device log", ring_ms: "rings", pagemap_ms: "page tables", own_ms: "own marks"};
	const colours = ["#0072b2", "#56b4e9", "#a6cee3", "#d55e00", "#cc79a7", "#009e73", "#b59f00"];
	const keys = Object.keys(names);
	const used = keys.filter((key) => rows.some((row) => row.sync[key] > 0));

	stacked("steps", used.map((key) => names[key]), used.map((key) => colours[keys.indexOf(key)]),
		used.map((key) => rows.map((row) => row.sync[key] * 1000)), "µs");
}

function show_time() {
	stacked("time", ["sync", "clears", "copy, zero pages, checksums", "sending"],
		["#0072b2", "#d55e00", "#a6cee3", "#ccc"],
		[(row) => row.sync.total_ms, (row) => row.clear_ms, (row) => row.scan_ms,
			(row) => row.send_ms].map((of) => rows.map(of)), "ms");
}

function show_pages() {
	const options = {
		width: WIDTH, height: 260,
		scales: {x: {time: false}, y: {distr: 3}},
		axes: [{label: "round", incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]},
			{label: "pages", size: 80}],
		series: [
			{label: "round"},
			{label: "sent", stroke: "#0072b2", width: 2, points: {show: true}},
			{label: "dirtied meanwhile", stroke: "#d55e00", width: 2, points: {show: true}},
		],
	};

	new uPlot(options, [rows.map((row) => row.round), rows.map((row) => positive(row.pages)),
		rows.map((row) => positive(row.new_pages))], by_id("pages"));
}

function owner_names() {
	return [...new Set(data.columns.map((column) => column.owner))].sort((a, b) =>
		(a === "disk" ? -1 : b === "disk" ? 1 : a.localeCompare(b)));
}

function show_legend(owners) {
	owners.forEach((owner, i) => {
		const entry = document.createElement("span");
		const box = document.createElement("i");

		box.style.background = OWNER_COLOURS[i % OWNER_COLOURS.length];
		entry.append(box, owner);
		by_id("legend").append(entry);
	});
}

/* What a round sends was dirtied during the one before; the first one sends all there is. */
function show_heat() {
	const owners = owner_names();
	const dirtied = rows.slice(1);
	const left = 64, bottom = 40, high = Math.max(3, Math.min(22, 420 / Math.max(1, dirtied.length)));
	const canvas = by_id("heat"), ratio = window.devicePixelRatio || 1;
	const height = Math.max(1, dirtied.length) * high + bottom;
	const width = (WIDTH - left) / data.columns.length;
	const context = canvas.getContext("2d");

	show_legend(owners);
	canvas.width = WIDTH * ratio;
	canvas.height = height * ratio;
	canvas.style.height = height + "px";
	context.scale(ratio, ratio);
	context.font = "12px system-ui, sans-serif";
	dirtied.forEach((row, y) => {
		row.taken.forEach((taken, x) => {
			const share = Math.min(1, taken / data.columns[x].pages);

			if (!share)
				return;
			context.globalAlpha = 0.12 + 0.88 * Math.sqrt(share);
			context.fillStyle =
				OWNER_COLOURS[owners.indexOf(data.columns[x].owner) % OWNER_COLOURS.length];
			context.fillRect(left + x * width, y * high, width + 0.3, high - (high > 6 ? 1 : 0));
		});
		context.globalAlpha = 1;
		context.fillStyle = "#555";
		if (high >= 12 || y % Math.ceil(12 / high) === 0)
			context.fillText(`round ${row.round - 1}`, 4, y * high + Math.max(10, high - 4));
	});
	draw_addresses(context, left, width, height - bottom);
}

function draw_addresses(context, left, width, top) {
	let block = null, owner = null, free = 0;

	context.fillStyle = "#555";
	context.textAlign = "left";
	data.columns.forEach((column, x) => {
		const at = left + x * width;

		if (column.block === block && column.owner === owner)
			return;
		if (at >= free) {
			const text = x && column.block !== block ? column.block : column.owner;
			const size = context.measureText(text).width;

			context.fillText(text, Math.min(at + 3, WIDTH - size - 2), top + 16);
			free = at + size + 8;
		}
		context.fillRect(at, top, 1, 20);
		block = column.block;
		owner = column.owner;
	});
	context.fillText("address", left, top + 34);
}

show_head();
show_figures();
show_convergence();
show_heat();
show_steps();
show_time();
show_pages();
