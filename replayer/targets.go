package replayer

import (
	"tapedeck.dev/tapedeck/replayer/manager"
	"tapedeck.dev/tapedeck/replayer/restore"
	"tapedeck.dev/tapedeck/replayer/run"
	"tapedeck.dev/tapedeck/replayer/target"
)

// openTargets makes a destination of every configured target. The second result frees them all, also after an error.
func openTargets(set settings, runner *run.Runner) (map[string]manager.Destination, func(), error) {
	out := make(map[string]manager.Destination, len(set.targets))
	var closers []func()
	free := func() {
		for _, f := range closers {
			f()
		}
	}
	for name, conf := range set.targets {
		if conf.Kafka != nil {
			d, err := restore.New(name, *conf.Kafka, runner)
			if err != nil {
				return nil, free, err
			}
			closers = append(closers, d.Close)
			out[name] = d
			continue
		}
		c, err := target.NewClient(conf, set.requestTimeout)
		if err != nil {
			return nil, free, err
		}
		closers = append(closers, c.Close)
		out[name] = runner.To(c)
	}
	return out, free, nil
}
