package service

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestLogLevelAtRunTime(t *testing.T) {
	var out bytes.Buffer
	log, level, err := newLogger(&out, "json", "info")
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	loggers{level, log}.register(mux)
	call := func(want int, method, path, body string) string {
		t.Helper()
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
		if w.Code != want {
			t.Fatalf("%s %s %s: %d, want %d: %s", method, path, body, w.Code, want, w.Body)
		}
		return w.Body.String()
	}
	log.Debug("hidden")
	if b := call(200, "GET", "/admin/loggers", ""); !strings.Contains(b, `"root"`) || !strings.Contains(b, `"INFO"`) {
		t.Error(b)
	}
	if b := call(200, "PUT", "/admin/loggers/root", `{"level":"DEBUG"}`); !strings.Contains(b, `"root"`) {
		t.Error(b)
	}
	log.Named("kafka").Debug("shown")
	if b := call(200, "GET", "/admin/loggers/root", ""); !strings.Contains(b, `"DEBUG"`) {
		t.Error(b)
	}
	call(404, "PUT", "/admin/loggers/org.apache", `{"level":"DEBUG"}`)
	call(400, "PUT", "/admin/loggers/root", `{"level":"FATAL"}`)
	call(400, "PUT", "/admin/loggers/root", `DEBUG`)
	call(200, "PUT", "/admin/loggers/root", `{"level":"error"}`)
	log.Warn("hidden too")
	if s := out.String(); strings.Contains(s, "hidden") || !strings.Contains(s, "shown") || !strings.Contains(s, `"from":"debug","to":"error"`) {
		t.Error(s)
	}
}
