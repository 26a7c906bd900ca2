// Package replayer is the service that runs replay jobs: records of the archive, re-emitted in order per partition into a
// processor. docs/replayer.md describes jobs, states and guarantees.
package replayer
