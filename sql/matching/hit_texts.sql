-- hit_texts: the length of the text of a hit.
-- columns: result_no, position, characters
-- kind: view
-- variants: none, if the size of every hit is known without its text, or no hit has one
SELECT result_no, position, characters
FROM hit_claims
WHERE characters IS NOT NULL
