#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The files of silt check, read by programs that are not silt's: they say the same, whatever a
backend's last words are.

    formats.py REPORT_SAMPLE
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

SAMPLE = sys.argv.pop()
HERE = pathlib.Path(__file__).parent
WRONG = ("fail", "error")
# Elements, and the attributes that each must and may have, as servers that read such files say.
JUNIT = {
    "testsuites": ({"name", "tests", "failures", "errors", "skipped", "time"}, set(),
                   {"testsuite"}),
    "testsuite": ({"name", "tests", "failures", "errors", "skipped", "time"}, set(),
                  {"properties", "testcase"}),
    "properties": (set(), set(), {"property"}),
    "property": ({"name", "value"}, set(), set()),
    "testcase": ({"classname", "name", "time"}, set(), {"failure", "error", "skipped"}),
    "failure": ({"type", "message"}, set(), set()),
    "error": ({"type", "message"}, set(), set()),
    "skipped": ({"message"}, set(), set()),
}


def one_line(text):
    return text.replace("\n", " ").replace("\t", " ")


class Formats(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.addCleanup(self.place.cleanup)

    def write(self, *how):
        subprocess.run([SAMPLE, *how, self.place.name], check=True)
        self.json = json.loads(self.text("json"))
        return self.json["scenarios"]

    def text(self, kind):
        return pathlib.Path(self.place.name, f"report.{kind}").read_text(encoding="utf-8")

    def tap(self):
        done = subprocess.run(["perl", HERE / "tap.pl", f"{self.place.name}/report.tap"],
                              capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        return json.loads(done.stdout)

    def junit(self):
        top = xml.etree.ElementTree.fromstring(self.text("junit"))
        self.assertEqual(top.tag, "testsuites")
        for parent in top.iter():
            must, may, children = JUNIT[parent.tag]
            self.assertLessEqual(must, set(parent.keys()), parent.tag)
            self.assertLessEqual(set(parent.keys()), must | may, parent.tag)
            self.assertLessEqual({child.tag for child in parent}, children, parent.tag)
        return top

    def test_no_control_character_is_in_any_file(self):
        self.write()
        for kind in ("json", "tap", "junit", "html"):
            text = self.text(kind)
            self.assertTrue(text.endswith("\n"))
            for bad in "\0\a\b\x1b\x7f\x9b\u202e\u2028\ufffe":
                self.assertNotIn(bad, text, kind)

    def test_tap_says_what_json_says(self):
        scenarios = self.write()
        tap = self.tap()
        self.assertEqual([t["name"] for t in tap["tests"]],
                         ["- " + one_line(s["name"]).replace("\\", "\\\\").replace("#", "\\#")
                          for s in scenarios])
        for test, scenario in zip(tap["tests"], scenarios):
            self.assertEqual(test["ok"], scenario["result"] not in WRONG)
            self.assertEqual(test["directive"], "SKIP" if scenario["result"] == "skip" else
                             "TODO" if scenario["known"] else "")
            if scenario["result"] not in WRONG:
                self.assertNotIn("diagnosis", test)
                continue
            told = test["diagnosis"]
            self.assertEqual(told["message"], scenario["reason"])
            self.assertEqual(told["again"], scenario["repro"])
            self.assertEqual(told["severity"], scenario["result"])
            self.assertEqual(told.get("verdict"), scenario.get("verdict"))
            self.assertEqual([p.split()[0] for p in told.get("pages", [])],
                             [p["gpa"] for p in scenario["pages"]])
        self.assertEqual(int(tap["version"]), 13)
        self.assertEqual(tap["failed"], [n for n, s in enumerate(scenarios, 1)
                                         if s["result"] in WRONG and not s["known"]])

    def cases_agree(self, cases, scenarios):
        for case, scenario in zip(cases, scenarios):
            result = "skipped" if scenario["known"] else {
                "pass": None, "skip": "skipped", "fail": "failure",
                "error": "error"}[scenario["result"]]
            self.assertEqual([child.tag for child in case], [result] if result else [])
            self.assertEqual(float(case.get("time")), scenario["seconds"])
            if result:
                message = case[0].get("message")
                self.assertEqual(message.removeprefix("a known failure: "), scenario["reason"])
            if result in ("failure", "error"):
                self.assertIn("again: " + scenario["repro"], case[0].text)
                for page in scenario["pages"]:
                    self.assertIn(f"page {page['gpa']}, {page['class']}, {page['what']}",
                                  case[0].text)

    def test_junit_says_what_json_says(self):
        scenarios = self.write()
        top = self.junit()
        suites = top.findall("testsuite")
        self.assertEqual([s.get("name") for s in suites], ["snapshot", "shadow", "hostile"])
        for whole in [top, *suites]:
            cases = list(whole.iter("testcase"))
            self.assertEqual(int(whole.get("tests")), len(cases))
            for count, tag in (("failures", "failure"), ("errors", "error"),
                               ("skipped", "skipped")):
                self.assertEqual(int(whole.get(count)), sum(len(c.findall(tag)) for c in cases))
        cases = list(top.iter("testcase"))
        self.assertEqual([c.get("name") for c in cases], [s["name"] for s in scenarios])
        self.cases_agree(cases, scenarios)

    def test_a_run_that_could_not_be_made(self):
        self.assertEqual(self.write("-n"), [])
        self.assertEqual(self.json["result"], "error")
        self.assertEqual(self.tap()["bail"].split()[0:2], ["last", "lines:"])
        case, = self.junit().iter("testcase")
        self.assertEqual(case.find("error").get("message"), self.json["reason"])

    def test_the_page_holds_the_document(self):
        self.write()
        data = self.text("html").split('<script type="application/json" id="data">')[1]
        self.assertEqual(json.loads(data.split("</script>")[0]), self.json)


unittest.main(verbosity=2)
