package proof

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/goccy/go-yaml"

	"tapedeck.dev/tapedeck/shared/devstack/trips"
)

// The pipeline that the Compose stack mounts is the one that the proof writes for its own services: on another one it would prove
// something else.
func TestComposePipelineIsTheProofs(t *testing.T) {
	p := &Proof{Options: Options{Dir: t.TempDir(), Topic: "trips", Partitions: 4, Schema: trips.Schema}, Pipeline: "fares-trips"}
	written, err := p.writePipeline()
	if err != nil {
		t.Fatal(err)
	}
	var want, got map[string]any
	for file, into := range map[string]*map[string]any{written: &want, filepath.Join("..", "..", "..", "deploy", "compose", "fares.yaml"): &got} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(bytes.TrimSpace(text), into); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	if !reflect.DeepEqual(want, got) {
		t.Errorf("deploy/compose/fares.yaml says\n%v\nand the proof\n%v", got, want)
	}
}
