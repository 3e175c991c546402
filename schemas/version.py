"""The release that writes and reads the files: part of every build and run, so that a result names its program."""

VERSION = "0.1.0"
