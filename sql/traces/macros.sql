-- Is it the answer that means a refusal, whatever its case, and whatever white space is around it?
CREATE MACRO is_refusal(claim) AS
    CASE
        WHEN contains(lower(claim), 'not in context')
            THEN regexp_full_match(
                lower(claim), '[\t-\r\x1c-\x20\x{85}\pZ]*not in context[\t-\r\x1c-\x20\x{85}\pZ]*'
            )
        ELSE false
    END;
