// Package service is the frame of the three processes: configuration, signals, HTTP (health, readiness, metrics, status) and the
// logger.
package service

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
)

// Kind is the type of a setting's value.
type Kind int

// Kinds. A Duration is written with a unit (10s) where the key's name has none; keys ending in ".ms" are Int milliseconds. Bytes accept 64MiB.
const (
	String Kind = iota
	Int
	Bytes
	Bool
	Duration
	List // comma separated, or a YAML list
)

// Key describes one setting. A Name that ends in ".*" accepts any key with that prefix, as strings.
type Key struct {
	Name     string // dotted, Connect's name where the same thing exists
	Kind     Kind
	Default  string
	Doc      string // one line: meaning, unit, bounds
	Example  string // shown by --help in a sample file; "" leaves the key out of it
	Required bool
	Secret   bool // masked wherever printed; also accepted as <name>.file
}

// CommonKeys are the keys of every service: listen address (rest.listen, TAPEDECK_REST_LISTEN), log.level, log.format, bootstrap.servers,
// consumer.override.*, producer.override.*, schema.registry.*, store, topics.dir, start-up bound (startup.timeout). listen is the
// default listen address.
func CommonKeys(listen string) []Key { panic("stub") }

// Config is a resolved configuration. Precedence: --set, then environment TAPEDECK_* (dots as underscores, upper case), then the YAML file
// (nested or dotted), then defaults.
type Config struct{}

// Load resolves. env is os.Environ()-like; file "" means none. An unknown key is an error naming the nearest known one
// and where it was written (file:line, environment or --set); a missing required key, a value of the wrong kind too.
func Load(keys []Key, file string, sets []string, env []string) (*Config, error) { panic("stub") }

func (c *Config) String(name string) string                  { panic("stub") }
func (c *Config) Int(name string) int64                      { panic("stub") } // Int and Bytes
func (c *Config) Bool(name string) bool                      { panic("stub") }
func (c *Config) Duration(name string) time.Duration         { panic("stub") }
func (c *Config) List(name string) []string                  { panic("stub") }
func (c *Config) WithPrefix(prefix string) map[string]string { panic("stub") } // keys below "targets." etc., prefix removed
func (c *Config) Masked() map[string]string                  { panic("stub") } // every setting, secrets as "****"

// Frame is what a running service gets.
type Frame struct {
	Name    string
	Config  *Config
	Log     *zap.Logger
	Metrics *prometheus.Registry // served at /metrics
	Mux     *http.ServeMux       // the service's own routes; /healthz, /readyz, /metrics, /status are the frame's
	// Health, Ready and Status are set by the service before Serve. Ready nil error = ready. Status is rendered as JSON.
	Health func() error
	Ready  func() error
	Status func() any
}

// Serve listens on rest.listen and serves until ctx ends, then shuts down gracefully within a bound. It returns once no request is running.
func (f *Frame) Serve(ctx context.Context) error { panic("stub") }

// Command returns a cobra command that loads configuration (--config FILE, --set key=value), makes the frame and calls run with a context
// that ends at SIGTERM or SIGINT. --help shows every key and an example file. `healthcheck` is added as a subcommand: GET /healthz of rest.listen, exit 0 or 1.
func Command(name, short string, keys []Key, run func(ctx context.Context, f *Frame) error) *cobra.Command {
	panic("stub")
}

// ExitError carries an exit status (e.g. 1 finding, 2 could not run) through cobra to Main.
type ExitError struct {
	Code int
	Err  error // nil: nothing is printed
}

func (e *ExitError) Error() string { panic("stub") }

// Main runs a root command and returns the exit status: 0, an ExitError's code, else 2 (bad usage or could not run), the error printed on stderr in one line.
func Main(root *cobra.Command, args []string) int { panic("stub") }

// WriteJSON writes v; WriteError writes {"error_code": status, "message": …} as Connect does.
func WriteJSON(w http.ResponseWriter, status int, v any)                       { panic("stub") }
func WriteError(w http.ResponseWriter, status int, format string, args ...any) { panic("stub") }

// Nearest returns the known word with the smallest edit distance to word, or "" where none is near.
func Nearest(word string, known []string) string { panic("stub") }
