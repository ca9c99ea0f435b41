-- Is it the answer that means a refusal, ignoring case and surrounding white space? Most claims begin with another letter
-- and need no further check.
CREATE MACRO is_refusal(claim) AS
    CASE
        WHEN claim[1] IN ('n', 'N') OR claim[1] <= ' ' OR claim[1] > '~'
            THEN regexp_full_match(
                -- A dotted capital I is another letter, which the engine would fold to a plain i.
                lower(replace(claim, 'İ', '')), '[\t-\r\x1c-\x20\x{85}\pZ]*not in context[\t-\r\x1c-\x20\x{85}\pZ]*'
            )
        ELSE false
    END;
