package service

import (
	"encoding/json"
	"net/http"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// loggers serves the level of the log as Kafka Connect does. There is one logger, root.
type loggers struct {
	level zap.AtomicLevel
	log   *zap.Logger
}

const rootLogger = "root"

func (g loggers) register(mux *http.ServeMux) {
	mux.HandleFunc("GET /admin/loggers", func(w http.ResponseWriter, _ *http.Request) {
		WriteJSON(w, http.StatusOK, map[string]any{rootLogger: g.state()})
	})
	mux.HandleFunc("GET /admin/loggers/{name}", func(w http.ResponseWriter, r *http.Request) {
		if g.named(w, r) {
			WriteJSON(w, http.StatusOK, g.state())
		}
	})
	mux.HandleFunc("PUT /admin/loggers/{name}", func(w http.ResponseWriter, r *http.Request) {
		if g.named(w, r) {
			g.set(w, r)
		}
	})
}

func (g loggers) state() map[string]string {
	return map[string]string{"level": strings.ToUpper(g.level.Level().String())}
}

func (g loggers) named(w http.ResponseWriter, r *http.Request) bool {
	if name := r.PathValue("name"); name != rootLogger {
		WriteError(w, http.StatusNotFound, "there is no logger %q: the only one is %s", name, rootLogger)
		return false
	}
	return true
}

func (g loggers) set(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Level string `json:"level"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4096)).Decode(&body); err != nil {
		WriteError(w, http.StatusBadRequest, `want {"level": "DEBUG"}: %s`, err)
		return
	}
	level, err := zapcore.ParseLevel(strings.ToLower(body.Level))
	if err != nil || level < zapcore.DebugLevel || level > zapcore.ErrorLevel {
		WriteError(w, http.StatusBadRequest, "level %q: want DEBUG, INFO, WARN or ERROR", body.Level)
		return
	}
	before := g.level.Level()
	g.level.SetLevel(level)
	g.log.Log(max(level, zapcore.InfoLevel), "log level changed on request", zap.Stringer("from", before), zap.Stringer("to", level))
	WriteJSON(w, http.StatusOK, []string{rootLogger})
}
