"""The results of gates: a table for people, JUnit XML and annotations for CI."""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from kbeval.compare.gates import GateReport
from kbeval.render.table import Cell, Column
from kbeval.util.text import counted, shown


def gate_table(report: GateReport) -> tuple[list[Column], list[list[Cell]]]:
    """One row per gate."""
    columns = [Column("pass", ""), Column("gate", width=60), Column("value", right=True), Column("why", width=140)]
    return columns, [
        ["pass" if result.passed else "FAIL", str(result.gate), result.value, result.why] for result in report.results
    ]


def gate_sentence(report: GateReport) -> str:
    """The result in one line."""
    failed = sum(1 for result in report.results if not result.passed)
    against = f" against {report.baseline}" if report.baseline is not None else ""
    if failed:
        return f"{report.run}{against}: {failed} of {counted(len(report.results), 'gate')} failed"
    return f"{report.run}{against}: {counted(len(report.results), 'gate')} passed"


def junit(report: GateReport) -> str:
    """JUnit XML for CI systems: one test case per gate."""
    failed = sum(1 for result in report.results if not result.passed)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuite name="kbeval gate" tests="{len(report.results)}" failures="{failed}" errors="0">',
    ]
    for result in report.results:
        case = f"<testcase classname={_attribute(f'kbeval.gate.{report.run}')} name={_attribute(str(result.gate))}"
        if result.passed:
            lines.append(f"  {case}/>")
        else:
            failure = f"<failure message={_attribute(result.why)}"
            # The message lists the first few queries, the text all of them.
            queries = "\n".join(escape(shown(query)) for query in result.queries)
            failure += f">{queries}</failure>" if queries else "/>"
            lines += [f"  {case}>", f"    {failure}", "  </testcase>"]
    return "\n".join([*lines, "</testsuite>"])


def _attribute(text: str) -> str:
    """Text from data as an XML attribute; control characters are not allowed in XML at all."""
    return quoteattr(shown(text))


def github(report: GateReport) -> str:
    """Workflow commands that GitHub shows as annotations."""
    lines = [
        f"::error title={_property(f'kbeval gate {result.gate}')}::{_message(result.why)}"
        for result in report.results
        if not result.passed
    ]
    return "\n".join([*lines, f"::notice title=kbeval gate::{_message(gate_sentence(report))}"])


def _message(text: str) -> str:
    return shown(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
