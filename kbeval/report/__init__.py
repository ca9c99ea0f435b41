"""One HTML file that shows the evidence for a run, a comparison of two runs, or a history.

`evidence` collects the results of every query, for all pages. `two_runs`, `one_run` and `history` each collect the
content of one kind of page; `page` writes it, with the templates, the style and the script in `templates/`. Charts are
drawn as SVG by `charts`.
"""
