// Package archiver copies topics to an archive, each offset exactly once. docs/archiver.md explains its parts and states.
package archiver
