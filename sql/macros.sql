-- Small helpers for opening JSON. Only sql/stored/, labels/, places/ and systems/ use them: everything after the facts is
-- plain SQL that other engines run unchanged.

CREATE MACRO json_is_number(j) AS j IS NULL OR TRY_CAST(CAST(j AS VARCHAR) AS DOUBLE) IS NOT NULL;
CREATE MACRO json_is_bool(j)   AS j IS NULL OR CAST(j AS VARCHAR) IN ('true', 'false');
-- The path of a field in an object, whatever its name.
CREATE MACRO field_path(name) AS '$."' || REPLACE(REPLACE(name, '\', '\\'), '"', '\"') || '"';

CREATE MACRO json_number(j)    AS TRY_CAST(CAST(j AS VARCHAR) AS DOUBLE);

-- The value at a path as text; null if there is none, or more than one.
CREATE MACRO json_scalar(j, path) AS
    CASE WHEN json_type(j, path) NOT IN ('OBJECT', 'ARRAY', 'NULL') THEN NULLIF(j ->> path, '') END;

-- An integer of at least 1, or null: 1.5, "1", 0 and 1e30 are not.
CREATE MACRO json_rank(j) AS
    CASE
        WHEN TRY_CAST(CAST(j AS VARCHAR) AS BIGINT) >= 1
         AND TRY_CAST(CAST(j AS VARCHAR) AS BIGINT) = TRY_CAST(CAST(j AS VARCHAR) AS DOUBLE)
        THEN TRY_CAST(CAST(j AS VARCHAR) AS BIGINT)
    END;

-- A number of tokens, from text: at least 0, or null.
CREATE MACRO token_number(t) AS
    CASE WHEN TRY_CAST(CAST(t AS VARCHAR) AS DOUBLE) >= 0 AND isfinite(TRY_CAST(CAST(t AS VARCHAR) AS DOUBLE))
         THEN TRY_CAST(CAST(t AS VARCHAR) AS DOUBLE) END;

-- An id that was an object or a list in the JSON arrives as its text. A number is a valid id, and so is "[12]".
CREATE MACRO is_json_container(t) AS left(t, 2) IN ('{"', '["', '[[', '[{', '{}', '[]') AND json_valid(t);

-- What the engine accepts as JSON although it is invalid or ambiguous: a comma before a closing bracket, NaN and Infinity,
-- a number beyond the range of floats, a duplicate key in an object. Null if there is none of this;
-- `kbeval/util/strict_json.py` implements the same in Python. The text must satisfy json_valid: the engine itself rejects
-- everything else, including a lone surrogate.
CREATE MACRO loose_fault(t) AS
    COALESCE(
        CASE WHEN maybe_loose(t) THEN syntax_fault(without_texts(t)) END,
        CASE WHEN repeats_a_key(t) THEN 'has a duplicate key in an object' END
    );
-- The same for a row, in less time if its fields are the usual ones.
CREATE MACRO loose_row_fault(t, is_usual) AS
    COALESCE(
        CASE WHEN maybe_loose(t) THEN syntax_fault(without_texts(t)) END,
        CASE WHEN NOT is_usual THEN CASE WHEN repeats_a_key(t) THEN 'has a duplicate key in an object' END END
    );
-- Are all objects of a row in places and with fields that are known to be free of duplicates? And may an object of such a
-- row have a field of this name? Nothing is known unless the source of the rows has looked at some of them and replaces
-- these macros: kbeval/storage/usual_fields.py.
CREATE MACRO has_usual_fields(t)  AS false;
CREATE MACRO is_usual_field(name) AS true;
CREATE MACRO is_strict_json(t) AS CASE WHEN json_valid(t) THEN loose_fault(t) IS NULL ELSE false END;
CREATE MACRO syntax_fault(t) AS
    CASE
        WHEN regexp_matches(t, ',[ \t\r\n]*[\]}]')
            THEN 'is not valid JSON: a comma stands before a closing bracket'
        WHEN regexp_matches(t, '(?i)nan|inf')
            THEN 'is not valid JSON: NaN and Infinity are not numbers in JSON'
        WHEN NOT list_bool_and(
            list_transform(
                regexp_extract_all(t, '[0-9][0-9.]*(?:[eE][-+]?[0-9]+)?'),
                lambda n: isfinite(CAST(n AS DOUBLE))
            )
        )
            THEN 'contains a number that is too large'
    END;

-- The same for a text from which n fields were read, each of which occurs once, or reading would have failed. Every field
-- has a colon: with at most one more colon there is at most one other field, so no key is duplicate.
CREATE MACRO is_loose(t, n) AS
       CASE WHEN maybe_loose(t) THEN syntax_fault(without_texts(t)) IS NOT NULL ELSE false END
    OR CASE WHEN strlen(t) - strlen(replace(t, ':', '')) > n + 1 THEN repeats_a_key(t) ELSE false END;

-- Could it contain any of that except a duplicate key? Fast, with false positives only: strings are not distinguished from
-- the rest. Each pattern begins with one fixed character, which is found many times faster than any alternative.
CREATE MACRO maybe_loose(t) AS
       regexp_matches(t, ',[ \t\r\n]*(?:[\]}]|-?(?:(?i:nan|inf|infinity)[ \t\r\n]*[,\]}]|[0-9.]*[eE]\+?[0-9]{3}|[0-9.]{30}))')
    OR regexp_matches(t, ':[ \t\r\n]*-?(?:(?i:nan|inf|infinity)[ \t\r\n]*[,\]}]|[0-9.]*[eE]\+?[0-9]{3}|[0-9.]{30})')
    OR regexp_matches(t, '\[[ \t\r\n]*-?(?:(?i:nan|inf|infinity)[ \t\r\n]*[,\]}]|[0-9.]*[eE]\+?[0-9]{3}|[0-9.]{30})');

-- JSON with every string in it emptied.
CREATE MACRO without_texts(t) AS regexp_replace(t, '"(?:[^"\\]|\\.)*"', '""', 'g');

-- Does any object in it have two fields with the same name? Objects in one row mostly have the same few sets of fields.
CREATE MACRO repeats_a_key(t) AS
    len(
        list_filter(
            list_distinct(list_filter(json_keys('[' || t || ']', '$..*'), lambda names: len(names) > 1)),
            lambda names: list_unique(names) < len(names)
        )
    ) > 0;

-- The distinct values of a list, and their number. Most lists have one item and need no check.
CREATE MACRO different(l)   AS CASE WHEN len(l) < 2 THEN l ELSE list_distinct(l) END;
CREATE MACRO n_different(l) AS CASE WHEN len(l) < 2 THEN len(l) ELSE CAST(COALESCE(list_unique(l), 0) AS BIGINT) END;

-- Text as it is searched for in other text: case-folded, with both forms of sigma treated as one letter.
CREATE MACRO folded(t) AS replace(lower(nfc_normalize(t)), 'ς', 'σ');

-- Does a row state that the system abstained: 'true', 'false', or null if it does not say? The field is in its own object,
-- or at the top level of the row.
CREATE MACRO said_abstained(r) AS
    COALESCE(NULLIF(CAST(r.abstention -> '$.abstained' AS VARCHAR), 'null'), CAST(r.abstained AS VARCHAR));

-- The text of a hit; null if it was not kept: it is missing, empty, masked ("***") or marked as redacted.
CREATE MACRO kept_text(t) AS
    CASE
        WHEN NOT regexp_full_match(
            t, '[\s\pZ*█■•….]*([\[(<{]+\s*redacted[^\])>}]*[\])>}]+|redacted)?[\s\pZ*█■•….]*', 'i'
        ) THEN t
    END;

-- Stored text that may contain bytes that are not UTF-8: is it text, and how is it shown? Invalid bytes as \xFF.
CREATE MACRO is_text(t)    AS TRY(decode(encode(t))) IS NOT NULL;
CREATE MACRO shown_text(t) AS CASE WHEN is_text(t) THEN t ELSE CAST(encode(t) AS VARCHAR) END;

-- The hash of a stored row: it changes with any text in the row.
CREATE MACRO row_hash(query_id, result_json) AS
    md5_number(concat(length(CAST(query_id AS VARCHAR)), ':', CAST(query_id AS VARCHAR), CAST(result_json AS VARCHAR)));

-- A short form in eight bytes, to be kept for each row.
CREATE MACRO row_mark(hash) AS CAST(hash & 18446744073709551615 AS UBIGINT);

-- The number of tokens that a row states: a number, an object with a total, or one with parts that are summed.
CREATE MACRO tokens_in(said, usage) AS
    COALESCE(
        json_number(said),
        json_number(json_extract(said, '$.total')),
        json_sum(json_extract(said, '$.prompt'), json_extract(said, '$.completion')),
        json_number(json_extract(usage, '$.total_tokens')),
        json_sum(json_extract(usage, '$.prompt_tokens'), json_extract(usage, '$.completion_tokens')),
        json_sum(json_extract(usage, '$.input_tokens'), json_extract(usage, '$.output_tokens'))
    );
CREATE MACRO json_sum(a, b) AS
    CASE WHEN json_number(a) IS NOT NULL OR json_number(b) IS NOT NULL
         THEN COALESCE(json_number(a), 0) + COALESCE(json_number(b), 0) END;

-- The cost that a row states, in US dollars.
CREATE MACRO dollars_in(said, in_dollars) AS
    COALESCE(json_number(in_dollars), json_number(said), json_number(json_extract(said, '$.usd')));

-- A number of a position. A value that is not a JSON number (true, "3", [3]) becomes NaN, so that the position is invalid
-- rather than incomplete.
CREATE MACRO span_number(j) AS CASE WHEN j IS NOT NULL THEN COALESCE(json_number(j), CAST('NaN' AS DOUBLE)) END;
CREATE MACRO numbered_span(s) AS {
    'kind': s.kind, 'page': span_number(s.page),
    'start': span_number(s."start"), 'end': span_number(s."end"),
    'line_start': span_number(s.line_start), 'line_end': span_number(s.line_end),
    'start_ms': span_number(s.start_ms), 'end_ms': span_number(s.end_ms),
    'char_start': span_number(s.char_start), 'char_end': span_number(s.char_end),
    'x': span_number(s.x), 'y': span_number(s.y), 'w': span_number(s.w), 'h': span_number(s.h)
};

-- The positions in a stored list of spans, one structure each; null if it is not such a list. Read as numbers, true would
-- be 1 and "3" would be 3, so a text that may contain such a value is read by a slower method.
CREATE MACRO spans_in(j) AS
    CASE
        WHEN regexp_matches(
            CAST(j AS VARCHAR),
            '\\|"(?:page|(?:line_|char_)?(?:start|end)|(?:start|end)_ms|[xywh])"[ \t\r\n]*:[ \t\r\n]*["tf\[{]'
        )
        THEN list_transform(
            TRY(from_json(CAST(j AS VARCHAR), '[{
                "kind": "VARCHAR", "page": "JSON",
                "start": "JSON", "end": "JSON", "line_start": "JSON", "line_end": "JSON",
                "start_ms": "JSON", "end_ms": "JSON", "char_start": "JSON", "char_end": "JSON",
                "x": "JSON", "y": "JSON", "w": "JSON", "h": "JSON"
            }]')),
            lambda s: numbered_span(s)
        )
        ELSE TRY(from_json(CAST(j AS VARCHAR), '[{
            "kind": "VARCHAR", "page": "DOUBLE",
            "start": "DOUBLE", "end": "DOUBLE", "line_start": "DOUBLE", "line_end": "DOUBLE",
            "start_ms": "DOUBLE", "end_ms": "DOUBLE", "char_start": "DOUBLE", "char_end": "DOUBLE",
            "x": "DOUBLE", "y": "DOUBLE", "w": "DOUBLE", "h": "DOUBLE"
        }]'))
    END;

-- Every kind of source position as a half-open rectangle on a named axis. One-dimensional kinds
-- have a height of one, so that one overlap rule applies to all. Bytes and characters are counted differently, so they are
-- separate axes. Null: no usable position.
CREATE MACRO span_axis(kind, page) AS
    CASE kind
        WHEN 'line'   THEN 'line'
        WHEN 'code'   THEN 'line'
        WHEN 'byte'   THEN 'byte'
        WHEN 'char'   THEN 'char'
        WHEN 'time'   THEN 'time'
        WHEN 'region' THEN 'region'
        WHEN 'page'   THEN CASE WHEN page >= 1 AND page = floor(page) THEN 'page ' || CAST(TRY_CAST(page AS BIGINT) AS VARCHAR) END
    END;
CREATE MACRO span_low(s) AS
    CASE s.kind
        WHEN 'line'   THEN s."start"
        WHEN 'code'   THEN s.line_start
        WHEN 'byte'   THEN s."start"
        WHEN 'char'   THEN s."start"
        WHEN 'time'   THEN s.start_ms
        WHEN 'region' THEN s.x
        WHEN 'page'   THEN CASE WHEN s.char_start IS NULL AND s.char_end IS NULL THEN 0 ELSE s.char_start END
    END;
CREATE MACRO span_high(s) AS
    CASE s.kind
        WHEN 'line'   THEN s."end" + 1
        WHEN 'code'   THEN s.line_end + 1
        WHEN 'byte'   THEN s."end"
        WHEN 'char'   THEN s."end"
        WHEN 'time'   THEN s.end_ms
        WHEN 'region' THEN s.x + s.w
        WHEN 'page'   THEN CASE WHEN s.char_start IS NULL AND s.char_end IS NULL THEN 1e15 ELSE s.char_end END
    END;
CREATE MACRO span_bottom(s) AS CASE s.kind WHEN 'region' THEN s.y ELSE 0 END;
CREATE MACRO span_top(s)    AS CASE s.kind WHEN 'region' THEN s.y + s.h ELSE 1 END;

-- Is it counted as its kind requires: lines from 1, bytes, characters and times from 0, and all except times and areas in
-- integers? The same rules apply to golden files (`kbeval/golden/spans.py`).
CREATE MACRO is_counted(s) AS
    CASE s.kind
        WHEN 'line' THEN s."start" >= 1 AND s."start" = floor(s."start") AND s."end" = floor(s."end")
        WHEN 'code' THEN s.line_start >= 1 AND s.line_start = floor(s.line_start) AND s.line_end = floor(s.line_end)
        WHEN 'byte' THEN s."start" >= 0 AND s."start" = floor(s."start") AND s."end" = floor(s."end")
        WHEN 'char' THEN s."start" >= 0 AND s."start" = floor(s."start") AND s."end" = floor(s."end")
        WHEN 'time' THEN s.start_ms >= 0
        WHEN 'page' THEN
            s.char_start IS NULL
            OR (s.char_start >= 0 AND s.char_start = floor(s.char_start) AND s.char_end = floor(s.char_end))
        ELSE true
    END;

-- Is it a valid position? Not if its end is before its start or not a number, or if its kind is unknown. (NaN is
-- larger than every number, and so is its difference from any.) Relations that need the rectangle anyway pass its sides,
-- so that each of them is planned once.
CREATE MACRO is_box(kind, axis, low, high, bottom, top, counted) AS
        axis IS NOT NULL
    AND COALESCE(high - low BETWEEN 1e-300 AND 1e300, false)
    AND COALESCE(kind <> 'region' OR top - bottom BETWEEN 1e-300 AND 1e300, false)
    AND COALESCE(counted, false);
CREATE MACRO is_place(s) AS
    is_box(s.kind, span_axis(s.kind, s.page), span_low(s), span_high(s), span_bottom(s), span_top(s), is_counted(s));

-- Does a citation state a position in the document, valid or not? A path alone or a caption does not.
CREATE MACRO says_where(s) AS
        COALESCE(s.kind <> 'caption', false)
    OR (
        s.kind IS NULL
        AND COALESCE(
            s.page, s."start", s."end", s.line_start, s.line_end, s.start_ms, s.end_ms, s.char_start, s.char_end,
            s.x, s.y, s.w, s.h
        ) IS NOT NULL
    );

-- The number of meaningful spans in a list. A caption is one, although it has no position.
CREATE MACRO n_usable(spans) AS len(list_filter(spans, lambda s: s.kind = 'caption' OR is_place(s)));

-- The key of a text of spans in relations with one row per span: the text, or its digest if it is long.
CREATE MACRO span_key(t) AS CASE WHEN length(t) <= 100 THEN t ELSE md5(t) END;

-- A position as text: the same for the same place, however it is written.
CREATE MACRO box_text(axis, low, high, bottom, top) AS concat_ws(' ', axis, low, high, bottom, top);

-- Are two chunks with the same id at different places? Unknown values contradict nothing.
CREATE MACRO stands_elsewhere(a_doc, a_place, b_doc, b_place) AS
    COALESCE(a_doc <> b_doc, false) OR COALESCE(a_place <> b_place, false);

-- The hits of a stored row with what they state about their place; null if there are none.
CREATE MACRO hits_in(j) AS
    TRY(from_json(CAST(j AS VARCHAR), '{
        "hits_top_k": [{
            "chunk_id": "VARCHAR", "doc_id": "VARCHAR", "doc_path": "VARCHAR", "chunker_version": "VARCHAR",
            "source_spans": "JSON", "citation": "JSON", "text": "VARCHAR"
        }]
    }')).hits_top_k;

-- The span of a citation as a list with one item; null if there is none.
CREATE MACRO cited_span(citation) AS
    CASE WHEN CAST(citation AS VARCHAR) LIKE '{%' THEN '[' || CAST(citation AS VARCHAR) || ']' END;

-- Was a text cut to 200 characters when it was stored? Then the contents and the length of the rest are unknown.
CREATE MACRO is_cut_text(t) AS t IS NULL OR (ends_with(t, '...') AND length(t) BETWEEN 200 AND 203);

-- A heading without # marks before it or after it (following a space); white space is reduced to single spaces.
CREATE MACRO heading_text(h) AS
    regexp_replace(
        regexp_replace(
            regexp_replace(nfc_normalize(h), '[\t-\r\x1c-\x20\x{85}\pZ]+', ' ', 'g'),
            '^[# ]+', ''
        ),
        ' [# ]*$', ''
    );

-- Headings as they are compared, each terminated by a mark that does not occur in them. "# A > ## B" and ["A", "B"] are the
-- same, and "Step 1" is not the beginning of "Step 10".
CREATE MACRO canonical_headings(j) AS
    COALESCE(
        list_aggregate(
            list_transform(
                list_filter(
                    list_transform(
                        CASE WHEN left(ltrim(CAST(j AS VARCHAR)), 1) = '['
                             THEN TRY(from_json(CAST(j AS VARCHAR), '["VARCHAR"]'))
                             ELSE string_split(COALESCE(TRY(from_json(CAST(j AS VARCHAR), '"VARCHAR"')), CAST(j AS VARCHAR)), ' > ')
                        END,
                        lambda h: heading_text(h)
                    ),
                    lambda h: h <> ''
                ),
                lambda h: h || chr(31)
            ),
            'string_agg', ''
        ),
        ''
    );

-- The folders that a system chose: a list, or an object that contains one. Null if it does not say.
CREATE MACRO chosen_folders(j) AS
    list_filter(
        CASE WHEN left(ltrim(CAST(j AS VARCHAR)), 1) = '['
             THEN TRY(from_json(CAST(j AS VARCHAR), '["VARCHAR"]'))
             ELSE TRY(from_json(CAST(j AS VARCHAR), '{"selected_folders": ["VARCHAR"]}')).selected_folders
        END,
        lambda folder: folder IS NOT NULL
    );

-- A folder as the prefix of paths: "./Area/" is "Area", and "." and "/" are everything.
CREATE MACRO folder_name(folder) AS NULLIF(regexp_replace(folder, '^(\./|/)+|(/\.?)+$', '', 'g'), '.');
