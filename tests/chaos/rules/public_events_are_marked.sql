-- A row of the journal has a context if one of its events publishes something, and else it has none.
SELECT f.run_id, f.first_seq AS run_seq,
       CASE WHEN j.public IS NULL THEN format('it publishes %s, and has no context', f.published)
            ELSE 'it publishes nothing, and has a context' END AS what
  FROM (SELECT f.run_key, f.run_id, f.first_seq, string_agg(p.run_seq::text, ', ' ORDER BY p.run_seq) AS published
          FROM facts AS f
          LEFT JOIN published AS p ON p.run_key = f.run_key AND p.run_seq = f.run_seq
         GROUP BY f.run_key, f.run_id, f.first_seq) AS f
  JOIN tidewheel_journal AS j ON j.run_key = f.run_key AND j.first_seq = f.first_seq
 WHERE (j.public IS NOT NULL) <> (f.published IS NOT NULL);
