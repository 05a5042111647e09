"""The SQL of the embedded broker, by name.

A message is a row from when it is published until it is settled. Nobody has it while ``holder`` is
null; otherwise one consumer does. ``place`` only grows, and a message keeps it within its queue.
Times are seconds of the wall clock, since processes and restarts share nothing else. Whatever
takes more than one statement runs in one immediate transaction (see ``queue_file``).
"""

from __future__ import annotations

#: Marks the file as ours ("TWbk"), and its schema.
APPLICATION_ID = 0x5457626B
SCHEMA_VERSION = 1

SCHEMA = (
    """CREATE TABLE queue (
           name TEXT PRIMARY KEY CHECK (name <> ''),
           delivery_limit INTEGER,
           dead_letter_queue TEXT,
           ttl_s REAL,
           expires_s REAL,
           used_at_s REAL NOT NULL
       ) WITHOUT ROWID""",
    """CREATE TABLE exchange (
           name TEXT PRIMARY KEY CHECK (name <> ''),
           type TEXT NOT NULL CHECK (type IN ('direct', 'topic', 'fanout'))
       ) WITHOUT ROWID""",
    """CREATE TABLE binding (
           exchange TEXT NOT NULL,
           key TEXT NOT NULL,
           queue TEXT NOT NULL,
           PRIMARY KEY (exchange, key, queue)
       ) WITHOUT ROWID""",
    # Ids are never used again (AUTOINCREMENT), so a late settlement cannot touch another's message.
    """CREATE TABLE consumer (
           id INTEGER PRIMARY KEY AUTOINCREMENT,
           queue TEXT NOT NULL,
           realm TEXT NOT NULL,
           pid INTEGER NOT NULL,
           started TEXT NOT NULL,
           beat_at_s REAL NOT NULL
       )""",
    """CREATE TABLE message (
           place INTEGER PRIMARY KEY AUTOINCREMENT,
           queue TEXT NOT NULL,
           body BLOB NOT NULL,
           envelope TEXT NOT NULL,
           due_s REAL,
           deliveries INTEGER NOT NULL DEFAULT 0,
           holder INTEGER
       )""",
    # Partial indexes: the head of a queue, what a consumer holds, and the next deadline cost one
    # lookup each, however long the queues are.
    "CREATE INDEX message_waiting ON message (queue, place) WHERE holder IS NULL",
    "CREATE INDEX message_held ON message (holder) WHERE holder IS NOT NULL",
    "CREATE INDEX message_due ON message (due_s) WHERE holder IS NULL AND due_s IS NOT NULL",
)

# Topology.

FIND_QUEUE = """
SELECT name, delivery_limit, dead_letter_queue, ttl_s, expires_s FROM queue WHERE name = :name"""

#: Declaring again only says that the queue is used; that the arguments agree was checked before.
DECLARE_QUEUE = """
INSERT INTO queue (name, delivery_limit, dead_letter_queue, ttl_s, expires_s, used_at_s)
VALUES (:name, :delivery_limit, :dead_letter_queue, :ttl_s, :expires_s, :now_s)
    ON CONFLICT (name) DO UPDATE SET used_at_s = excluded.used_at_s"""

FIND_EXCHANGE = "SELECT name, type FROM exchange WHERE name = :name"

DECLARE_EXCHANGE = "INSERT OR IGNORE INTO exchange (name, type) VALUES (:name, :type)"

DECLARE_BINDING = "INSERT OR IGNORE INTO binding (exchange, key, queue) VALUES (:exchange, :key, :queue)"

FORGET_BINDING = "DELETE FROM binding WHERE exchange = :exchange AND key = :key AND queue = :queue"

#: A queue goes with everything that names it. Its consumers find their row gone, and stop.
DELETE_QUEUE = (
    "DELETE FROM message WHERE queue = :name",
    "DELETE FROM consumer WHERE queue = :name",
    "DELETE FROM binding WHERE queue = :name",
    "DELETE FROM queue WHERE name = :name",
)

DELETE_EXCHANGE = (
    "DELETE FROM binding WHERE exchange = :name",
    "DELETE FROM exchange WHERE name = :name",
)

PURGE = "DELETE FROM message WHERE queue = :queue AND holder IS NULL"

COUNT_WAITING = "SELECT count(*) FROM message WHERE queue = :queue AND holder IS NULL"

# Publishing.

FIND_ROUTES = """
SELECT exchange.type, binding.key, binding.queue
  FROM exchange JOIN binding ON binding.exchange = exchange.name
 WHERE exchange.name = :exchange
 ORDER BY binding.queue, binding.key"""

#: Append to a queue if it exists: no row inserted means nobody takes it. The deadline is the nearer
#: of the queue's and the message's own; each stands in for the other where that is null.
PUBLISH = """
INSERT INTO message (queue, body, envelope, due_s)
SELECT name, :body, :envelope, :now_s + min(coalesce(ttl_s, :expires_s), coalesce(:expires_s, ttl_s))
  FROM queue
 WHERE name = :queue"""

# Delivering.

ADD_CONSUMER = """
INSERT INTO consumer (queue, realm, pid, started, beat_at_s)
SELECT name, :realm, :pid, :started, :now_s FROM queue WHERE name = :queue"""

IS_ANYTHING_WAITING = """
SELECT EXISTS (SELECT 1 FROM message
                WHERE queue = :queue AND holder IS NULL AND (due_s IS NULL OR due_s > :now_s))"""

#: Take the first messages that wait. One statement, so two consumers never get the same one. Who was
#: taken for dead has no row any more and gets nothing: it would hold it for ever.
LEASE = """
UPDATE message
   SET holder = :consumer, deliveries = deliveries + 1
 WHERE place IN (SELECT place FROM message
                  WHERE queue = :queue AND holder IS NULL AND (due_s IS NULL OR due_s > :now_s)
                  ORDER BY place
                  LIMIT :batch_max)
   AND EXISTS (SELECT 1 FROM consumer WHERE id = :consumer)
RETURNING place, body, envelope, deliveries"""

#: Settling names the holder: once a message was given to somebody else, the former holder's word is void.
ACKNOWLEDGE = "DELETE FROM message WHERE place = :place AND holder = :consumer"

RELEASE = "UPDATE message SET holder = NULL WHERE place = :place AND holder = :consumer"

#: As RELEASE, for what was fetched ahead and never shown to anybody: that was no delivery.
RETURN_UNSEEN = """
UPDATE message SET holder = NULL, deliveries = deliveries - 1 WHERE place = :place AND holder = :consumer"""

FIND_HELD = "SELECT place FROM message WHERE place = :place AND holder = :consumer"

RELEASE_ALL = "UPDATE message SET holder = NULL WHERE holder = :consumer"

REMOVE_CONSUMER = "DELETE FROM consumer WHERE id = :consumer"

#: The time until a queue expires counts from when the last consumer left it.
QUEUE_WAS_USED = """
UPDATE queue SET used_at_s = :now_s WHERE name = (SELECT queue FROM consumer WHERE id = :consumer)"""

#: No row changed means that this consumer was taken for dead, or its queue deleted.
BEAT = "UPDATE consumer SET beat_at_s = :now_s WHERE id = :consumer"

CONSUMER_EXISTS = "SELECT EXISTS (SELECT 1 FROM consumer WHERE id = :consumer)"

FIND_CONSUMERS = "SELECT id, realm, pid, started, beat_at_s FROM consumer"

# Dead letters.

#: What this consumer holds, or only *place* of it, and may not be delivered once more.
FIND_DELIVERED_TOO_OFTEN = """
SELECT message.place
  FROM message JOIN queue ON queue.name = message.queue
 WHERE message.holder = :consumer
   AND (:place IS NULL OR message.place = :place)
   AND message.deliveries >= queue.delivery_limit"""

FIND_EXPIRED = """
SELECT place FROM message WHERE holder IS NULL AND due_s <= :now_s ORDER BY place LIMIT :batch_max"""

FIND_EXPIRED_QUEUES = """
SELECT name FROM queue
 WHERE used_at_s + expires_s <= :now_s
   AND NOT EXISTS (SELECT 1 FROM consumer WHERE consumer.queue = queue.name)"""

#: Copy messages to the end of their dead-letter queues, those that have one, saying why and whence, and under
#: which key they came, if that is not the queue's name.
#: A dead letter does not expire by itself any more, and its deliveries are counted anew.
COPY_TO_DEAD_LETTERS = """
INSERT INTO message (queue, body, envelope, due_s)
SELECT target.name,
       message.body,
       json_set(CASE coalesce(json_extract(message.envelope, '$.routing_key'), message.queue)
                     WHEN message.queue THEN json_remove(message.envelope, '$.properties.expiration')
                     ELSE json_insert(json_remove(message.envelope, '$.properties.expiration'),
                                      '$.headers."' || :key_header || '"',
                                      json_extract(message.envelope, '$.routing_key'))
                END,
                '$.headers."' || :reason_header || '"', :reason,
                '$.headers."' || :origin_header || '"', message.queue),
       :now_s + target.ttl_s
  FROM message
  JOIN queue AS origin ON origin.name = message.queue
  JOIN queue AS target ON target.name = origin.dead_letter_queue
 WHERE message.place IN (SELECT value FROM json_each(:places))
 ORDER BY message.place"""

REMOVE_PLACES = "DELETE FROM message WHERE place IN (SELECT value FROM json_each(:places))"
