"""Where versions live: one `Store` over any `Files` (folder, S3-compatible bucket, HDFS).

`contract` is the small interface each kind of storage implements; `store` has the rules and is
written once over it; `open_store` picks the storage by URL.
"""
