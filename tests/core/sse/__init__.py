"""Tests of the server-sent event layer: parser, event and encoder."""
