"""One file per command; each says on its own page what it takes and gives."""
