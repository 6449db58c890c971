"""Topics as streams over HTTP: what the requests mean, without any I/O."""
