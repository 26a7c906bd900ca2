package houserules

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// TestImportDirections checks the repository itself.
func TestImportDirections(t *testing.T) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,Deps,Name", "../../...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkgs []Package
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p struct {
			ImportPath, Name string
			Imports, Deps    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, Package{ImportPath: p.ImportPath, Imports: p.Imports, Deps: p.Deps, Main: p.Name == "main"})
	}
	if len(pkgs) < 10 {
		t.Fatalf("only %d packages listed", len(pkgs))
	}
	for _, line := range Check(pkgs) {
		t.Error(line)
	}
}

func TestCheckCatches(t *testing.T) {
	for _, c := range []struct {
		name, pkg, imp, want string
	}{
		{"service imports service", "replayer/run", module + "processor/engine", "replayer may import only"},
		{"shared imports service", "shared/archive", module + "archiver", "may import only"},
		{"record imports ours", "shared/record", module + "shared/segment", "may import only"},
		{"kafka sdk elsewhere", "archiver", "github.com/confluentinc/confluent-kafka-go/v2/kafka", "stays in"},
		{"aws sdk elsewhere", "shared/archive", "github.com/aws/aws-sdk-go-v2/service/s3", "stays in"},
		{"srclient elsewhere", "processor/live", "github.com/riferrei/srclient", "stays in"},
		{"engine takes a context", "processor/engine", "context", "no clock"},
		{"openapi elsewhere", "replayer/api", "github.com/getkin/kin-openapi/openapi3", "stays in"},
		{"product imports a checker", "replayer/api", module + "replayer/internal/apicheck", "stays in"},
		{"product imports devstack", "archiver", module + "shared/devstack", "may import only|stays in"},
	} {
		got := strings.Join(Check([]Package{{ImportPath: module + c.pkg, Imports: []string{c.imp}}}), "\n")
		ok := false
		for _, w := range strings.Split(c.want, "|") {
			ok = ok || strings.Contains(got, w)
		}
		if !ok {
			t.Errorf("%s: got %q, want it to contain %q", c.name, got, c.want)
		}
	}
	got := Check([]Package{{ImportPath: module + "archiver/cmd/archiver", Main: true, Deps: []string{module + "shared/devstack"}}})
	if len(got) != 1 {
		t.Errorf("a product binary that carries the embedded stack: %v", got)
	}
	if got := Check([]Package{{ImportPath: module + "archiver", Imports: []string{module + "shared/archive", "context"}}}); len(got) != 0 {
		t.Errorf("a legal import was refused: %v", got)
	}
}
