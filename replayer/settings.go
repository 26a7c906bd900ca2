package replayer

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"tapedeck.dev/tapedeck/replayer/run"
	"tapedeck.dev/tapedeck/replayer/target"
	"tapedeck.dev/tapedeck/shared/service"
)

// Listen is the default address of the API.
const Listen = "127.0.0.1:8184"

// Keys are the settings of the replayer.
func Keys() []service.Key {
	return append(service.CommonKeys(Listen, service.StoreKeys(), foreignKeys()),
		service.Key{Name: "store", Kind: service.String, Required: true,
			Doc:     "the archive: s3://bucket/prefix?endpoint=…&region=…&path-style=true or file:///directory",
			Example: "s3://tapedeck/archive?region=eu-central-1"},
		service.Key{Name: "targets.*", Doc: "targets of replays: targets.<name>.type (processor), .url and .pipeline; .token (or .token.file) and .ssl.ca.location, .ssl.certificate.location, .ssl.key.location where it asks for them; a request chooses by name"},
		service.Key{Name: "targets.processor.type", Kind: service.String, Doc: "type of the target named processor: processor", Example: "processor"},
		service.Key{Name: "targets.processor.url", Kind: service.String, Doc: "its address", Example: "http://127.0.0.1:8185"},
		service.Key{Name: "targets.processor.pipeline", Kind: service.String, Doc: "the pipeline to replay into", Example: "trips"},
		service.Key{Name: "replayer.id", Kind: service.String,
			Doc: "name of this replayer, unique among those that share the archive and kept over restarts, so that it takes up its jobs at once; empty: a random one"},
		service.Key{Name: "job.lease", Kind: service.Duration, Default: "15s", Check: positive,
			Doc: "how long a job stays with a replayer that no longer renews it; renewed every third"},
		service.Key{Name: "job.scan.interval", Kind: service.Duration, Default: "3s", Check: positive,
			Doc: "between looks at the jobs of other replayers"},
		service.Key{Name: "replay.parallel", Kind: service.Int, Default: "4", Check: parallelBounds,
			Doc: "partitions sent at the same time per job, 1 to 64; memory per job is about twice as many segments"},
		service.Key{Name: "replay.hold.bytes", Kind: service.Bytes, Default: "256MiB",
			Doc: "segments that partitions waiting for their time (speed, rates, order event-time) may hold per job past replay.parallel; what is more is given up and read again"},
		service.Key{Name: "target.retry.timeout", Kind: service.Duration, Default: "10m", Check: positive,
			Doc: "how long nothing may go forward (target or store does not answer) before a job fails"},
		service.Key{Name: "target.request.timeout", Kind: service.Duration, Default: "2m", Check: positive,
			Doc: "how long one call to a target may take"},
	)
}

func positive(s string) error {
	if d, err := time.ParseDuration(s); err == nil && d <= 0 {
		return errors.New("must be more than 0")
	}
	return nil
}

func parallelBounds(s string) error {
	if n, err := strconv.Atoi(s); err == nil && (n < 1 || n > 64) {
		return errors.New("must be 1 to 64")
	}
	return nil
}

// settings are the resolved ones.
type settings struct {
	id             string
	stable         bool // id is configured
	targets        map[string]target.Config
	run            run.Settings
	lease, scan    time.Duration
	requestTimeout time.Duration
}

// retryBackoff is between tries of a call to the store or a target.
var retryBackoff = run.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second}

func readSettings(c *service.Config, host string) (settings, error) {
	targets := map[string]string{}
	for key, value := range c.WithPrefix("targets.") {
		if value != "" { // the documented examples have no value unless given
			targets[key] = value
		}
	}
	confs, err := target.ParseConfig(targets)
	if err != nil {
		return settings{}, err
	}
	s := settings{
		id: c.String("replayer.id"), targets: confs,
		lease: c.Duration("job.lease"), scan: c.Duration("job.scan.interval"), requestTimeout: c.Duration("target.request.timeout"),
		run: run.Settings{Parallel: int(c.Int("replay.parallel")), HoldBytes: c.Int("replay.hold.bytes"), RetryTimeout: c.Duration("target.retry.timeout"), Backoff: retryBackoff},
	}
	s.stable = s.id != ""
	if !s.stable {
		var b [6]byte
		_, _ = rand.Read(b[:]) // never fails (crypto/rand)
		s.id = fmt.Sprintf("%s-%s", host, hex.EncodeToString(b[:]))
	}
	return s, nil
}
