// Command archiver records Kafka topics to an object store.
package main

import (
	"net/http"
	"os"

	"tapedeck.dev/tapedeck/archiver"
	"tapedeck.dev/tapedeck/archiver/inspect"
	"tapedeck.dev/tapedeck/shared/service"
)

func main() {
	root := service.Command("archiver", "Record Kafka topics to an object store, each offset exactly once.", archiver.Keys(), archiver.Run,
		archiver.ConnectorFile)
	root.AddCommand(archiver.RunCommand(), statusCommand(),
		operateCommand("pause", http.MethodPut, "Let a running archiver fetch nothing more; it stays in its group"),
		operateCommand("resume", http.MethodPut, "Let a paused archiver go on"),
		operateCommand("restart", http.MethodPost, "Let partitions of a running archiver begin again from the archive, stopped ones too"),
		inspect.InspectCommand(), inspect.VerifyCommand(), inspect.AcceptGapCommand())
	os.Exit(service.Main(root, os.Args[1:]))
}
