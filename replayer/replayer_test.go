package replayer

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/replayer/internal/replaytest"
	"tapedeck.dev/tapedeck/shared/service"
)

func frame(t *testing.T, sets ...string) *service.Frame {
	t.Helper()
	cfg, err := service.Load(Keys(), "", sets, nil)
	if err != nil {
		t.Fatal(err)
	}
	return service.NewFrame("replayer", cfg, zap.NewNop())
}

func TestServiceStartsAnswersAndStops(t *testing.T) {
	port := filepath.Join(t.TempDir(), "port")
	f := frame(t, "store=mem://"+t.Name(), "rest.listen=127.0.0.1:0", "rest.port.file="+port,
		"targets.x.url=http://127.0.0.1:9", "targets.x.pipeline=p", "replayer.id=me")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, f) }()
	var addr string
	replaytest.Until(t, "it is ready", func() bool {
		data, err := os.ReadFile(port)
		addr = strings.TrimSpace(string(data))
		if err != nil || addr == "" {
			return false
		}
		resp, err := http.Get(fmt.Sprintf("http://%s/readyz", addr))
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	for path, want := range map[string]int{"/healthz": 200, "/metrics": 200, "/status": 200, "/replays": 200, "/openapi.yaml": 200, "/replays/x": 404} {
		resp, err := http.Get("http://" + addr + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestStartIsRefusedWithTheSetting(t *testing.T) {
	tests := []struct {
		sets []string
		want string
	}{
		{[]string{"store=nowhere"}, "store: "},
		{[]string{"store=file:///proc/none/archive"}, "store: "},
		{[]string{"store=mem://x", "targets.a.url=ftp://x", "targets.a.pipeline=p"}, "targets.a.url"},
		{[]string{"store=mem://x", "targets.a.url=http://x:1"}, "targets.a.pipeline"},
		{[]string{"store=mem://x", "targets.a.url=http://x:1", "targets.a.pipline=p"}, "did you mean targets.a.pipeline?"},
		{[]string{"store=mem://x", "targets.a.type=kafka"}, "targets.a.bootstrap.servers is missing"},
	}
	for _, c := range tests {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := Run(ctx, frame(t, append(c.sets, "rest.listen=127.0.0.1:0", "startup.timeout=1s")...))
		cancel()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.sets, err, c.want)
		}
	}
	for _, bad := range []string{"replay.parallel=0", "replay.parallel=65", "job.lease=0s", "target.retry.timeout=0s"} {
		if _, err := service.Load(Keys(), "", []string{"store=mem://x", bad}, nil); err == nil || !strings.Contains(err.Error(), strings.Split(bad, "=")[0]) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := service.Load(Keys(), "", nil, nil); err == nil || !strings.Contains(err.Error(), "store") {
		t.Errorf("no store: %v", err)
	}
}
