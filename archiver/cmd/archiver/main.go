// Command archiver records Kafka topics to an object store.
package main

import (
	"os"

	"tapedeck.dev/tapedeck/archiver"
	"tapedeck.dev/tapedeck/archiver/inspect"
	"tapedeck.dev/tapedeck/shared/service"
)

func main() {
	root := service.Command("archiver", "Record Kafka topics to an object store, each offset exactly once.", archiver.Keys(), archiver.Run)
	root.AddCommand(archiver.RunCommand(), inspect.InspectCommand(), inspect.VerifyCommand(), inspect.AcceptGapCommand())
	os.Exit(service.Main(root, os.Args[1:]))
}
