-- compared: one row per query of either run: how it changed, and every cause that the data shows.
-- columns: query_id, query, kind, matching, a_hit_rank, b_hit_rank, note, in_both, answer ('better', 'worse' or null),
--          then one column per cause, null if it does not apply: presence, failure, ranking, places, refusal, rules,
--          citations, configuration
-- kind: table
WITH causes AS (
    SELECT
        p.*,
        CASE
            WHEN p.a_hit_rank IS NULL AND p.b_hit_rank IS NULL AND p.matching IS NULL THEN 'nothing expected'
            WHEN p.a_hit_rank IS NULL AND p.b_hit_rank IS NULL                        THEN 'miss in both'
            WHEN p.a_hit_rank IS NULL                                                 THEN 'miss→hit'
            WHEN p.b_hit_rank IS NULL                                                 THEN 'hit→miss'
            WHEN p.a_hit_rank = p.b_hit_rank
                THEN CONCAT('rank ', CAST(p.a_hit_rank AS STRING), ' in both')
            ELSE CONCAT('rank ', CAST(p.a_hit_rank AS STRING), '→', CAST(p.b_hit_rank AS STRING))
        END AS movement,
        CASE
            WHEN NOT p.in_a THEN 'not in A'
            WHEN NOT p.in_b THEN 'not in B'
        END AS presence,
        CASE
            WHEN p.a_failed AND p.b_failed THEN 'errors in both'
            WHEN p.b_failed                THEN 'now errors'
            WHEN p.a_failed AND p.in_b     THEN 'no longer errors'
        END AS failure,
        CASE
            WHEN p.kind = 'regression' AND p.in_b AND NOT p.b_failed
                THEN CASE WHEN p.b_doc_rank IS NULL THEN 'not retrieved'
                          ELSE CONCAT('not retrieved, though its document is at rank ', CAST(p.b_doc_rank AS STRING))
                     END
            WHEN p.kind = 'loss' AND p.a_hit_rank <= c.k_b AND p.b_hit_rank > c.k_b
                THEN CONCAT('below the top ', CAST(c.k_b AS STRING))
            WHEN p.kind = 'loss' THEN 'ranked lower'
            WHEN p.kind = 'win' AND p.a_hit_rank IS NULL THEN CASE WHEN p.in_a AND NOT p.a_failed THEN 'now retrieved' END
            WHEN p.kind = 'win' AND p.a_hit_rank > c.k_a AND p.b_hit_rank <= c.k_a
                THEN CONCAT('now in the top ', CAST(c.k_a AS STRING))
            WHEN p.kind = 'win'  THEN 'ranked higher'
        END AS ranking,
        CASE
            WHEN p.a_hit_rank IS NULL OR p.b_hit_rank IS NULL OR p.matching = 'doc' THEN NULL
            WHEN m.n_lost > 0   THEN CONCAT('lost expected chunk ', m.lost, ' while another was found')
            WHEN m.n_gained > 0 THEN CONCAT('found expected chunk ', m.gained, ' too')
        END AS places,
        CASE
            WHEN p.a_refused = p.b_refused                          THEN NULL
            WHEN p.b_refused AND p.should_refuse                    THEN 'now refuses, rightly'
            WHEN p.b_refused AND NOT p.a_refused                    THEN 'answer now refuses'
            WHEN p.a_refused AND p.should_refuse AND NOT p.b_refused THEN 'refused correctly, now answers'
            WHEN p.a_refused AND NOT p.b_refused                    THEN 'no longer refuses'
        END AS refusal,
        CASE
            WHEN p.a_keeps_rules AND NOT p.b_keeps_rules THEN 'answer now breaks its rules'
            WHEN p.b_keeps_rules AND NOT p.a_keeps_rules THEN 'answer now keeps its rules'
        END AS rules,
        CASE
            WHEN p.a_cites_well AND NOT p.b_cites_well THEN 'citation broke'
            WHEN p.b_cites_well AND NOT p.a_cites_well THEN 'citations lead somewhere again'
        END AS citations,
        CASE WHEN p.kind <> 'draw' THEN c.changed END AS configuration
    FROM pairs AS p
    CROSS JOIN comparison AS c
    LEFT JOIN moved_places AS m ON m.query_id = p.query_id
)

SELECT
    x.query_id,
    q.query,
    x.kind,
    x.matching,
    x.a_hit_rank,
    x.b_hit_rank,
    CONCAT_WS(
        '; ', x.movement, x.presence, x.failure,
        -- 'rank 1→2' already states it.
        CASE WHEN x.ranking NOT IN ('ranked lower', 'ranked higher', 'now retrieved') THEN x.ranking END,
        x.places, x.refusal, x.rules, x.citations, x.configuration
    )                   AS note,
    x.in_a AND x.in_b   AS in_both,
    CASE
        WHEN x.refusal IN ('refused correctly, now answers', 'answer now refuses')
          OR x.rules = 'answer now breaks its rules'
          OR x.citations = 'citation broke'   THEN 'worse'
        WHEN x.refusal IS NOT NULL
          OR x.rules IS NOT NULL
          OR x.citations IS NOT NULL          THEN 'better'
    END                 AS answer,
    x.presence,
    x.failure,
    x.ranking,
    x.places,
    x.refusal,
    x.rules,
    x.citations,
    x.configuration
FROM causes AS x
LEFT JOIN queries AS q ON q.query_id = x.query_id
