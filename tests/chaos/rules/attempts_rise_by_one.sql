-- The n-th start of a step is its attempt n.
SELECT run_id, run_seq, format('attempt %s of promise %s is start number %s', attempt, promise, number) AS what
  FROM (SELECT run_id, run_seq, promise, attempt,
               row_number() OVER (PARTITION BY run_key, promise ORDER BY run_seq) AS number
          FROM facts
         WHERE type = 'InvokeStarted') AS starts
 WHERE attempt IS DISTINCT FROM number;
