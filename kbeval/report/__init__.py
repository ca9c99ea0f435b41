"""One HTML file that shows the evidence: of a run, of two runs, or of a history.

`evidence` gathers what became of every query, once for all of them. `two_runs`, `one_run` and `history` each gather one
kind of page; `page` writes it, with the templates, the style and the script in `templates/`. Charts are drawn here
(`charts`), as SVG.
"""
