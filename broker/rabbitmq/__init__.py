"""RabbitMQ: aiormq for connections and declarations, a lane of our own for messages and their settlement."""
