package replayer

import (
	"context"
	"errors"
	"os"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"tapedeck.dev/tapedeck/replayer/api"
	"tapedeck.dev/tapedeck/replayer/jobstore"
	"tapedeck.dev/tapedeck/replayer/manager"
	"tapedeck.dev/tapedeck/replayer/metrics"
	"tapedeck.dev/tapedeck/replayer/run"
	"tapedeck.dev/tapedeck/replayer/target"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/service"
)

// Run is the replayer as a service: it checks its store, then serves the API and runs jobs until ctx ends.
func Run(ctx context.Context, f *service.Frame) (err error) {
	host, err := os.Hostname()
	if err != nil {
		host = "replayer"
	}
	set, err := readSettings(f.Config, host)
	if err != nil {
		return err
	}
	at, err := openPlaces(ctx, f.Config)
	defer func() { err = errors.Join(err, at.close()) }()
	if err != nil {
		return err
	}
	if err := at.check(ctx, f); err != nil {
		return err
	}

	m := metrics.New(f.Metrics)
	runner := &run.Runner{Archive: at.arch, Settings: set.run, Log: f.Log.Named("run"), Metrics: m}
	if at.foreign != nil {
		runner.Foreign = at.foreign
	}
	targets, closeTargets, err := openTargets(set, runner)
	defer closeTargets()
	if err != nil {
		return err
	}
	if len(targets) == 0 {
		f.Log.Warn("no targets are configured (targets.<name>.type and what it needs): no job can be started here")
	}
	mgr := manager.New(jobstore.New(at.ours), runner.Source(), targets,
		manager.Settings{ID: set.id, Lease: set.lease, Scan: set.scan, Stable: set.stable}, f.Log.Named("jobs"), m)
	api.New(mgr).Register(f.Mux)
	f.Ready = mgr.Ready
	f.Status = func() any { return status(mgr, set) }
	f.Log.Info("replayer", zap.String("id", set.id), zap.Stringer("store", at.records), zap.Stringer("jobs", at.ours), zap.Strings("targets", target.Names(set.targets)))

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return f.Serve(ctx) })
	g.Go(func() error { return mgr.Run(ctx) })
	return g.Wait()
}

func checkStore(ctx context.Context, arch *archive.Archive) error {
	err := archive.Probe(ctx, arch.Store())
	if err == nil {
		err = arch.CheckDir(ctx)
	}
	return permanent(err)
}

// Status is the replayer's part of /status.
type Status struct {
	ID      string   `json:"id"`
	Targets []string `json:"targets"`
	Working []string `json:"working"` // jobs that this replayer is at work on
}

func status(m *manager.Manager, set settings) Status {
	return Status{ID: set.id, Targets: target.Names(set.targets), Working: m.Working()}
}
