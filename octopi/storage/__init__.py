"""Bytes on a disk: logs in segments, and small files that are replaced as a whole.

Start reading at `segmented_log`.  This package keeps bytes at offsets.  It knows nothing of the
content of messages, of leaders, and of what is committed.
"""
