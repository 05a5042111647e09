"""How work items travel: messages, queues, and brokers. A message is a hint, never a truth."""
