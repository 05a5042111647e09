"""RabbitMQ: aio-pika for connections and declarations, a lane of our own for messages."""
