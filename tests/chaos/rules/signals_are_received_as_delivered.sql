-- What the code gets was delivered before, and is consumed once.
SELECT f.run_id, f.run_seq, format('delivery %s of signal %s', f.delivery_id, f.signal_name) AS what
  FROM facts AS f
 WHERE f.type = 'SignalReceived'
   AND (NOT EXISTS (SELECT 1
                      FROM facts AS d
                     WHERE d.run_key = f.run_key
                       AND d.type = 'SignalDelivered'
                       AND d.signal_name = f.signal_name
                       AND d.delivery_id = f.delivery_id
                       AND d.run_seq < f.run_seq)
        OR EXISTS (SELECT 1
                     FROM facts AS b
                    WHERE b.run_key = f.run_key
                      AND b.type = 'SignalReceived'
                      AND b.signal_name = f.signal_name
                      AND b.delivery_id = f.delivery_id
                      AND b.run_seq < f.run_seq));
