"""From what people have (files, buckets, HDFS) to records a trainer can use, with every oddity named."""
