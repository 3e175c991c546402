"""The contract between the stages: what every file looks like, how it is sealed, how a command fails."""
