"""Bulk processing: many documents in, one JSON line per document out, in input order, resumable after any crash."""
