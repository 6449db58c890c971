"""What crosses a connection: the messages, their encoding and who may send which where."""
