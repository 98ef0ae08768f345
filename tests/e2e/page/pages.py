#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The pages of silt check and silt demo, in a browser: they show what the JSON says, and nothing that
a backend said is more than text there.

    pages.py SILT REPORT_SAMPLE
"""
import html.parser
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SAMPLE = sys.argv.pop()
SILT = sys.argv.pop()
BROWSER = shutil.which("chromium-headless-shell") or shutil.which("chromium")
# It is root who runs this in containers, and there is no network to look for anything in.
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--enable-logging=stderr", "--virtual-time-budget=1000", "--window-size=1200,900"]
RESULTS = ("pass", "fail", "error", "skip")
# Whatever the page runs is counted here; the policy of the page does not allow it to load anything.
PROBE = """<script>
document.body.dataset.evil = typeof evil;
document.body.dataset.elements = document.querySelectorAll("img, iframe, object, embed").length;
document.body.dataset.loaded = performance.getEntriesByType("resource").length;
%s
</script></body>"""


class Dom(html.parser.HTMLParser):
    """The text of elements with an id, and all elements by name."""

    VOID = {"meta", "input", "br", "img", "link"}

    def __init__(self, text):
        super().__init__()
        self.open, self.by_id, self.elements = [], {}, []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        element = {"tag": tag, "attrs": dict(attrs), "text": ""}
        self.elements.append(element)
        if "id" in element["attrs"]:
            self.by_id[element["attrs"]["id"]] = element
        if tag not in self.VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        while self.open and self.open.pop()["tag"] != tag:
            pass

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def all(self, tag, **attrs):
        return [e for e in self.elements if e["tag"] == tag and
                all(e["attrs"].get(key) == value for key, value in attrs.items())]

    def number(self, name):
        return float(self.by_id[name]["text"].replace(",", ""))


class Pages(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.dir = pathlib.Path(place.name)
        self.report = self.dir / "report.json"
        self.page = self.dir / "report.html"

    def browse(self, action="", *flags):
        """Return: the page as it is once its script and @action have run, and what it complained of."""
        page = self.page.read_text(encoding="utf-8")
        self.assertEqual(page.count("</body>"), 1)
        probed = self.dir / "probed.html"
        probed.write_text(page.replace("</body>", PROBE % action), encoding="utf-8")
        done = subprocess.run([BROWSER, *FLAGS, *flags, f"--user-data-dir={self.dir}/profile",
                               "--dump-dom", probed.as_uri()], capture_output=True, text=True,
                              timeout=60, check=True)
        return Dom(done.stdout), [line for line in done.stderr.splitlines() if "CONSOLE" in line]

    def opened(self, action="", *flags):
        dom, complaints = self.browse(action, *flags)
        self.assertEqual(complaints, [])
        body, = dom.all("body")
        self.assertEqual((body["attrs"]["data-evil"], body["attrs"]["data-elements"],
                          body["attrs"]["data-loaded"]), ("undefined", "0", "0"))
        return dom

    def shows(self, dom, report):
        scenarios = report["scenarios"]
        self.assertEqual(dom.by_id["result"]["text"], report["result"])
        for result in RESULTS:
            self.assertEqual(dom.number(f"count-{result}"),
                             sum(s["result"] == result for s in scenarios))
        for key in ("changed", "extra", "late", "ignored", "known"):
            self.assertEqual(dom.number(f"count-{key}"), sum(s[key] for s in scenarios))
        self.assertEqual(dom.number("count-missed"), report["missed_pages"])
        rows = [e["text"] for e in dom.all("tr") if e["attrs"].get("class") in RESULTS]
        self.assertEqual(len(rows), len(scenarios))
        for scenario in scenarios:
            row, = (row for row in rows if row.startswith(
                (scenario.get("verdict") or scenario["result"]) +
                (" (known)" if scenario["known"] else "") + scenario["name"] +
                "".join(scenario["axes"].values())))
            self.assertTrue(row.endswith(scenario["reason"]))
        wrong = [s for s in scenarios if s["result"] in ("fail", "error")]
        boxes = {e["text"].removesuffix(" (known)").split(" ", 1)[-1] for e in dom.all("summary")}
        for scenario in wrong:
            self.assertTrue(any(box.endswith(scenario["name"]) for box in boxes), scenario["name"])
        self.assertEqual(len(dom.all("summary")), len(wrong))

    def sample(self):
        subprocess.run([SAMPLE, self.dir], check=True)
        return json.loads(self.report.read_text(encoding="utf-8"))

    def test_a_complaint_would_be_seen(self):
        self.sample()
        self.assertIn("nobody", "".join(self.browse("nobody.is_here();")[1]))
        self.assertTrue(self.browse("fetch('file:///etc/hostname');")[1])

    def test_a_hostile_backend_is_only_quoted(self):
        report = self.sample()
        self.shows(self.opened(), report)
        self.shows(self.opened("", "--blink-settings=preferredColorScheme=0"), report)

    def shows_cost(self, dom, cost):
        self.assertEqual(dom.by_id["cost-meaning"]["text"], cost["meaning"])
        for key, name, digits in (("off", "off_per_second", 0), ("on", "on_per_second", 0),
                                  ("share", "share", 3), ("changed", "changed", 0),
                                  ("marked", "marked", 0), ("ratio", "marked_per_changed", 2)):
            self.assertAlmostEqual(dom.number(f"cost-{key}"), cost[name], delta=0.51 / 10 ** digits)

    def test_the_cost_of_logging(self):
        report = self.sample()
        dom = self.opened()
        self.shows_cost(dom, report["cost"])
        self.assertEqual(len(dom.all("canvas")), 2)

    def test_strips_show_each_stretch(self):
        report = self.sample()
        dom = self.opened()
        pictures = [e for e in dom.all("svg", role="img")]
        with_strip = [s for s in report["scenarios"] if s["strip"]]
        self.assertEqual(len(pictures), len(with_strip))
        titles = [e["text"] for e in dom.all("title") if e["text"].startswith("page")]
        for stretch in (stretch for s in with_strip for stretch in s["strip"]):
            first = int(stretch["gpa"], 16)
            last = first + (stretch["pages"] - 1) * 4096
            # One that does not fit into a row goes on in the next.
            mine = [t for t in titles if stretch["state"] in t and t.endswith(stretch["what"])]
            self.assertTrue(any(t.startswith((f"page 0x{first:x}:", f"pages 0x{first:x} to "))
                                for t in mine))
            self.assertTrue(any(f"0x{last:x}:" in t for t in mine))

    def test_a_value_chooses_scenarios(self):
        self.sample()
        dom = self.opened("""
            const write = [...document.querySelectorAll(".matrix button")].find(
                (button) => button.textContent.startsWith("write"));
            write.click();
            document.body.dataset.chosen = document.getElementById("shown").textContent;
            write.click();
            const text = document.getElementById("filter");
            text.value = "shadow/";
            text.dispatchEvent(new Event("input"));""")
        body, = dom.all("body")
        self.assertIn("2 of 6 shown", body["attrs"]["data-chosen"])
        self.assertIn("1 of 6 shown", dom.by_id["shown"]["text"])
        rows = [e for e in dom.all("tr") if e["attrs"].get("class") in RESULTS]
        self.assertEqual(sum("hidden" not in e["attrs"] for e in rows), 1)

    def test_a_run_that_could_not_be_made(self):
        subprocess.run([SAMPLE, "-n", self.dir], check=True)
        dom = self.opened()
        self.assertEqual(dom.by_id["result"]["text"], "error")
        self.assertTrue(dom.by_id["summary"]["text"].startswith("last lines:"))

    def test_a_real_run(self):
        subprocess.run([SILT, "check", "--self-test", "-q", f"--json={self.report}",
                        f"--html={self.page}", "--only=snapshot/*/three", "--cost"], check=True,
                       timeout=60)
        dom = self.opened()
        report = json.loads(self.report.read_text(encoding="utf-8"))
        self.shows(dom, report)
        self.shows_cost(dom, report["cost"])
        self.assertEqual(len(dom.all("canvas")), 2)

    def test_the_demo(self):
        subprocess.run([SILT, "demo", "--quiet", "--memory=16M", "--rate=2000", "--disk=0",
                        "--before=20", "--after=20", f"--json={self.report}",
                        f"--html={self.page}"], check=True, timeout=60)
        report = json.loads(self.report.read_text(encoding="utf-8"))
        dom = self.opened()
        self.assertEqual(dom.by_id["result"]["text"], report["result"])
        figures = dom.by_id["figures"]["text"]
        for figure in (f"in {report['rounds']} rounds", f"{report['pages_sent']:,} pages",
                       report["source_hash"], report["destination_hash"]):
            self.assertIn(figure, figures)


if not BROWSER:
    print("no Chromium (package chromium-headless-shell)")
    sys.exit(77)
unittest.main(verbosity=2)
