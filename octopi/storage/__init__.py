"""Bytes on a disk: logs in segments, and small files that are replaced as a whole.

`segmented_log` is the way in.  What a record means, who leads and what is committed are
others' concerns: this package is told offsets and keeps bytes.
"""
