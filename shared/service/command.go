package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sort"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
)

// ExitError carries an exit status (e.g. 1 finding, 2 could not run) through cobra to Main.
type ExitError struct {
	Code int
	Err  error // nil: nothing is printed
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// Main runs a root command and returns the exit status: 0, an ExitError's code, else 2 (bad usage or could not run), the error
// printed on stderr in one line.
func Main(root *cobra.Command, args []string) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetArgs(args)
	err := root.Execute()
	if err == nil {
		return 0
	}
	code := 2
	if e, ok := errors.AsType[*ExitError](err); ok {
		code = e.Code
		if e.Err == nil {
			return code
		}
	}
	fmt.Fprintf(root.ErrOrStderr(), "%s: %s\n", root.Name(), oneLine(err.Error()))
	return code
}

// options are the flags that say where a service's configuration comes from.
type options struct {
	file    string
	sets    []string
	foreign Foreign
}

// Foreign reads a configuration file that is written for another program. ErrNotForeign where it is not; then the file is read as ours. notes are
// lines for people about what differs.
type Foreign func(data []byte) (settings []ForeignSetting, notes []string, err error)

// ForeignSetting is a setting that stands in a foreign file as From.
type ForeignSetting struct{ Name, Value, From string }

// ErrNotForeign: the file is not of the other program.
var ErrNotForeign = errors.New("not a foreign configuration")

// load resolves the configuration that the flags name.
func (o *options) load(reader string, keys []Key, env []string) (cfg *Config, notes []string, err error) {
	if o.file != "" && o.foreign != nil {
		data, err := os.ReadFile(o.file)
		if err != nil {
			return nil, nil, fmt.Errorf("read configuration: %w", err)
		}
		ss, notes, err := o.foreign(data)
		if err == nil {
			own := make([]setting, len(ss))
			for i, s := range ss {
				own[i] = setting{name: s.Name, raw: s.Value, origin: o.file + ": " + s.From}
			}
			cfg, err := resolve(reader, keys, own, o.sets, env)
			return cfg, notes, err
		}
		if !errors.Is(err, ErrNotForeign) {
			return nil, nil, fmt.Errorf("%s: %w", o.file, err)
		}
	}
	cfg, err = load(reader, keys, o.file, o.sets, env)
	return cfg, nil, err
}

func newOptions(foreign []Foreign) *options {
	o := &options{}
	if len(foreign) > 0 {
		o.foreign = foreign[0]
	}
	return o
}

func (o *options) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.file, "config", "", "configuration `file` (YAML, nested or dotted keys)")
	cmd.Flags().StringArrayVar(&o.sets, "set", nil, "one setting, `key=value`; may be repeated")
}

// Command returns a cobra command that loads configuration (--config FILE, --set key=value), makes the frame and calls run with a
// context that ends at SIGTERM or SIGINT, also while it starts (then no error); a second signal ends the process at once. --help shows every key and an example file.
// Subcommands: `healthcheck` (GET /healthz of rest.listen, exit 0 or 1), `config` (prints the resolved configuration, secrets
// masked) and `version`.
//
// foreign, where one is given, reads files that --config names and that are written for another program.
func Command(name, short string, keys []Key, run func(ctx context.Context, f *Frame) error, foreign ...Foreign) *cobra.Command {
	cmd := JobCommand(name, name, short, keys, func(ctx context.Context, f *Frame, _ io.Writer) error {
		err := run(ctx, f)
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return nil // the signal came before there was anything to shut down
		}
		return err
	}, foreign...)
	keys = merge(keys)
	cmd.Long = short + "\n\n" + help(name, keys)
	cmd.AddCommand(configCommand(name, keys, foreign...), healthcheckCommand(keys, foreign...), versionCommand(name))
	return cmd
}

// JobCommand returns a command named by use that loads a service's configuration as Command does and runs to an end: for a subcommand
// of the service. run gets the command's standard output.
func JobCommand(service, use, short string, keys []Key, run func(ctx context.Context, f *Frame, out io.Writer) error, foreign ...Foreign) *cobra.Command {
	keys = merge(keys)
	o := newOptions(foreign)
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, notes, err := o.load("the "+service, keys, os.Environ())
			if err != nil {
				return err
			}
			if err := unprivileged(cfg); err != nil {
				return err
			}
			log, level, err := newLogger(cmd.ErrOrStderr(), cfg.String("log.format"), cfg.String("log.level"))
			if err != nil {
				return err
			}
			for _, n := range notes {
				log.Warn("configuration taken over with a difference", zap.String("file", o.file), zap.String("note", n))
			}
			// A certificate or token that cannot be read is said now, not after the waiting for Kafka.
			if _, err := newGuard(cfg, log); err != nil {
				return err
			}
			ctx, stop := withSignals(cmd.Context(), log)
			defer stop()
			f := NewFrame(service, cfg, log)
			f.level = &level
			b := BuildInfo()
			log.Info("starting", zap.String("service", service), zap.String("version", b.Version), zap.String("revision", b.Revision))
			return run(ctx, f, cmd.OutOrStdout())
		},
	}
	o.flags(cmd)
	return cmd
}

// sameSignal is how long the signal that began the shutdown is not counted a second time: GNU timeout and process groups deliver one twice.
const sameSignal = time.Second

// withSignals returns a context that ends at the first SIGTERM or SIGINT. A second signal, another or later than sameSignal, finds the
// default action, so that it ends a process whose shutdown hangs. The returned function frees the signals.
func withSignals(parent context.Context, log *zap.Logger) (context.Context, func()) {
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithCancel(parent)
	got := make(chan os.Signal, 8)
	signal.Notify(got, os.Interrupt, syscall.SIGTERM)
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		defer signal.Stop(got)
		var first os.Signal
		select {
		case first = <-got:
		case <-end:
			return
		}
		log.Info("shutting down; a second signal ends the process at once", zap.Stringer("signal", first))
		cancel()
		same := time.NewTimer(sameSignal)
		defer same.Stop()
		for {
			select {
			case s := <-got:
				if s == first {
					continue
				}
				signal.Reset(os.Interrupt, syscall.SIGTERM)
				if p, err := os.FindProcess(os.Getpid()); err == nil {
					_ = p.Signal(s) // with its default action
				}
				return
			case <-same.C:
				return
			case <-end:
				return
			}
		}
	}()
	return ctx, func() {
		close(end)
		<-ended
		cancel()
	}
}

func configCommand(name string, keys []Key, foreign ...Foreign) *cobra.Command {
	o := newOptions(foreign)
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the resolved configuration, secrets masked",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, notes, err := o.load("the "+name, keys, os.Environ())
			if err != nil {
				return err
			}
			for _, n := range notes {
				fmt.Fprintln(cmd.ErrOrStderr(), "note:", n)
			}
			return cfg.print(cmd.OutOrStdout())
		},
	}
	o.flags(cmd)
	return cmd
}

// print writes the masked configuration as YAML that Load accepts, with the origin of every value.
func (c *Config) print(w io.Writer) error {
	masked := c.Masked()
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, n := range c.names() {
		if k, _ := c.lookup(n); masked[n] == "" && k.Kind != String && k.Kind != List && k.Kind != Entries {
			continue // there is no way to write "not set" for these but leaving them out
		}
		if _, err := fmt.Fprintf(tw, "%s: %s\t# %s\n", n, yamlScalar(masked[n]), c.values[n].origin); err != nil {
			return fmt.Errorf("print configuration: %w", err)
		}
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("print configuration: %w", err)
	}
	return nil
}

// yamlScalar quotes a value for YAML where it needs that.
func yamlScalar(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./") == "" &&
		!strings.ContainsAny(s[:1], "-.") {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", "''") + "'"
}

func versionCommand(name string) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print version and revision",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := BuildInfo()
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s (%s, %s)\n", name, b.Version, b.Revision, b.Go)
			return err
		},
	}
}

// help describes every key, and shows an example file.
func help(name string, keys []Key) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Settings come from --set key=value, else the environment (%s), else the file given by --config,\nelse the default. Secrets can also be given as <name>.file.\n\nSettings:\n", EnvName("key.name"))
	sorted := append([]Key(nil), keys...)
	sort.SliceStable(sorted, func(i, j int) bool { return sorted[i].Name < sorted[j].Name })
	for _, k := range sorted {
		var notes []string
		if _, family := k.isPrefix(); !family {
			notes = append(notes, k.Kind.String())
		}
		if len(k.OneOf) > 0 {
			notes = append(notes, "one of "+strings.Join(k.OneOf, ", "))
		}
		switch {
		case k.Required && k.Default == "":
			notes = append(notes, "required")
		case k.Default != "":
			notes = append(notes, "default "+k.Default)
		}
		if k.Secret {
			notes = append(notes, "secret, or "+k.Name+".file")
		}
		note := ""
		if len(notes) > 0 {
			note = " (" + strings.Join(notes, "; ") + ")"
		}
		fmt.Fprintf(&b, "  %s\n      %s%s\n", k.Name, k.Doc, note)
	}
	fmt.Fprintf(&b, "\nExample file (%s.yaml):\n", name)
	for line := range strings.Lines(ExampleFile(keys)) {
		b.WriteString("  " + line)
	}
	return strings.TrimRight(b.String(), "\n")
}

// ExampleFile is a sample configuration made of the keys' Example values.
func ExampleFile(keys []Key) string {
	var b strings.Builder
	for _, k := range keys {
		if k.Example == "" {
			continue
		}
		name := k.Name
		if p, family := k.isPrefix(); family {
			// The example of a family says which member it sets: "fetch.min.bytes=1".
			member, value, _ := strings.Cut(k.Example, "=")
			fmt.Fprintf(&b, "%s: %s\n", p+member, yamlScalar(value))
			continue
		}
		if k.Kind == List {
			quoted := make([]string, 0, 4)
			for _, e := range splitList(k.Example) {
				quoted = append(quoted, yamlScalar(e))
			}
			fmt.Fprintf(&b, "%s: [%s]\n", name, strings.Join(quoted, ", "))
			continue
		}
		fmt.Fprintf(&b, "%s: %s\n", name, yamlScalar(k.Example))
	}
	return b.String()
}
