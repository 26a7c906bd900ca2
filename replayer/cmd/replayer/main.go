// Command replayer runs replay jobs, and asks a running replayer for them.
package main

import (
	"os"

	"tapedeck.dev/tapedeck/shared/service"
)

func main() { os.Exit(service.Main(root(), os.Args[1:])) }
