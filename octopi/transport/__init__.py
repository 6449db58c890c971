"""Connections between nodes: trio-websocket below, numbered requests and answers above.

No other package imports trio-websocket.  From below: `addresses` reads urls, `websocket` makes
links of whole messages, `connection` gives a link its reader and its writer task,
`handshake` opens one with hello and welcome, `server` accepts many.
"""
