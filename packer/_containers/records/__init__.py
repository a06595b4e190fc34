"""TFRecord and RecordIO: records one after the other."""
