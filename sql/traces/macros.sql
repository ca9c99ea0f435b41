-- Is it the answer that means a refusal, whatever its case, and whatever white space is around it? Most claims begin
-- with another letter, and need no closer look.
CREATE MACRO is_refusal(claim) AS
    CASE
        WHEN claim[1] IN ('n', 'N') OR claim[1] <= ' ' OR claim[1] > '~'
            THEN regexp_full_match(
                -- A dotted capital is another letter, of which the engine makes a plain i.
                lower(replace(claim, 'İ', '')), '[\t-\r\x1c-\x20\x{85}\pZ]*not in context[\t-\r\x1c-\x20\x{85}\pZ]*'
            )
        ELSE false
    END;
