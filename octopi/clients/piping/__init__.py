"""From topic to topic, each message once: `octopi.clients.client.Client.pipe`.

`input_place` is what a record of the output says of its input.  `pipe_log` decides, without I/O,
what is sent for one log of the input, and what has to be processed.  `pipe_output` performs that,
and `pipe` is what the program uses.
"""
